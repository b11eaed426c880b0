"""The job specification that the Pulumi program writes and the trainer reads.

Owns every fact that crosses from the plan into the pod: model, data, optimizer, mesh, slices, storage and
the exit codes that travel back. Knows neither JAX nor Pulumi, so both sides can import it.
"""

from workloads.spec.base import NUMBER, Number, PositiveInt, Spec, WholeNumber
from workloads.spec.call import CallSpec
from workloads.spec.compiler import LIBTPU_VARIABLE, CompilerSpec, rendered
from workloads.spec.data import (
    DataSpec,
    MixedSpec,
    MixtureSpec,
    StandardLibrarySpec,
    TokenFileSpec,
    TokenFolderSpec,
    token_folders,
)
from workloads.spec.job import JobSpec, StorageSpec
from workloads.spec.model import ExpertsSpec, ModelSpec, Reach, RopeScaling, WindowSpec
from workloads.spec.pod import (
    API_ACCESS_PATH,
    BAD_HOST_CHARACTERS,
    BAD_HOST_KEY,
    CALL_KEY_VARIABLE,
    CALL_SPEC_VARIABLE,
    FATAL_CODES,
    IMAGE_VARIABLE,
    JOB_FOLDER_VARIABLE,
    JOB_SPEC_VARIABLE,
    METRICS_ADDRESS_VARIABLE,
    METRICS_PORT,
    NODE_VARIABLE,
    PRICE_VARIABLE,
    PROFILE_REQUEST,
    RUN_ID_VARIABLE,
    SLICES_VARIABLE,
    START_VARIABLE,
    ExitCode,
    cause_order,
)
from workloads.spec.preset import Preset, load_preset, preset_names
from workloads.spec.slices import MOST_SLICES, MeshSpec, SliceSpec
from workloads.spec.trackers import WANDB_KEY_VARIABLE, TrackersSpec, WandbSpec
from workloads.spec.training import (
    CHANGEABLE,
    Attention,
    Kernel,
    LoraSpec,
    OptimizerSetting,
    OptimizerSpec,
    Remat,
    TrainingSpec,
)

__all__ = [
    "API_ACCESS_PATH",
    "BAD_HOST_CHARACTERS",
    "BAD_HOST_KEY",
    "CALL_KEY_VARIABLE",
    "CALL_SPEC_VARIABLE",
    "CHANGEABLE",
    "FATAL_CODES",
    "IMAGE_VARIABLE",
    "JOB_FOLDER_VARIABLE",
    "JOB_SPEC_VARIABLE",
    "LIBTPU_VARIABLE",
    "METRICS_ADDRESS_VARIABLE",
    "METRICS_PORT",
    "MOST_SLICES",
    "NODE_VARIABLE",
    "NUMBER",
    "PRICE_VARIABLE",
    "PROFILE_REQUEST",
    "RUN_ID_VARIABLE",
    "SLICES_VARIABLE",
    "START_VARIABLE",
    "WANDB_KEY_VARIABLE",
    "Attention",
    "CallSpec",
    "CompilerSpec",
    "DataSpec",
    "ExitCode",
    "ExpertsSpec",
    "JobSpec",
    "Kernel",
    "LoraSpec",
    "MeshSpec",
    "MixedSpec",
    "MixtureSpec",
    "ModelSpec",
    "Number",
    "OptimizerSetting",
    "OptimizerSpec",
    "PositiveInt",
    "Preset",
    "Reach",
    "Remat",
    "RopeScaling",
    "SliceSpec",
    "Spec",
    "StandardLibrarySpec",
    "StorageSpec",
    "TokenFileSpec",
    "TokenFolderSpec",
    "TrackersSpec",
    "TrainingSpec",
    "WandbSpec",
    "WholeNumber",
    "WindowSpec",
    "cause_order",
    "load_preset",
    "preset_names",
    "rendered",
    "token_folders",
]
