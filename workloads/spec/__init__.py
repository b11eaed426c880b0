"""The job specification, which the Pulumi program writes and the trainer reads.

It has every fact that the plan passes to the pod: model, data, optimizer, mesh, slices, storage; and the exit codes
that the pod returns. It imports neither JAX nor Pulumi, so both sides can import it.
"""

# Other packages use these names from here.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from multislice_run.exit_codes import CONSEQUENCES, FATAL_CODES, ExitCode, cause_order
from multislice_run.pod import (
    API_ACCESS_PATH,
    ATTEMPT_BEGINS,
    BAD_HOST_CHARACTERS,
    BAD_HOST_KEY,
    CALL_KEY_VARIABLE,
    CALL_SPEC_VARIABLE,
    HEARTBEAT_VARIABLE,
    IMAGE_VARIABLE,
    JOB_FOLDER_VARIABLE,
    JOB_SPEC_VARIABLE,
    LOCAL_CHECKPOINTS_VARIABLE,
    METRICS_ADDRESS_VARIABLE,
    METRICS_PORT,
    NODE_VARIABLE,
    PRICE_VARIABLE,
    PROFILE_REQUEST,
    PROFILES,
    RUN_ID_VARIABLE,
    SLICES_VARIABLE,
    START_VARIABLE,
    XPROF_FOLDER,
)
from workloads.spec.base import NUMBER, Flag, Number, PositiveInt, Spec, WholeNumber
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
from workloads.spec.job import (
    Backend,
    CallSpec,
    ExistingRun,
    JobSpec,
    Preset,
    StorageSpec,
    load_preset,
    present_word,
    preset_names,
)
from workloads.spec.model import ExpertsSpec, ModelSpec, Reach, RopeScaling, WindowSpec
from workloads.spec.slices import MAX_SLICES, MeshSpec, SliceSpec
from workloads.spec.training import (
    CHANGEABLE,
    WANDB_KEY_VARIABLE,
    Attention,
    Kernel,
    LoraSpec,
    OptimizerSetting,
    OptimizerSpec,
    Remat,
    TrackersSpec,
    TrainingSpec,
    WandbSpec,
)
