"""Reading a stack file: what is valid, and every error of what is not."""

import pulumi
import pytest
from pulumi import runtime

from infra.configuration import load
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from infra.stack.settings.values import HIDDEN
from tests.infra.recording import Values
from tests.infra.spoiling import Spoil, edited, errors_of, put, remove

_OTHER_TEAM = {"namespace": "research", "quota": {"trillium": 0}}
_LITE = {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "spot"}
_CPUS = "a machine type of Compute Engine without accelerators, such as e2-standard-4"

_GROUP, _QUOTA, _NAMESPACE = "slices.trillium", "teams.research.quota.trillium", "teams.research.namespace"
_SLICES = "job.slices"
_TOKENS, _LORA = {"path": "gs://b/t", "weight": 1}, {"rank": 8, "alpha": 16}
_BETA1 = {"optimizer": {"beta1": 0.8}, "allow_changes": ["optimizer.beta1"]}


def _in_job(**settings: object) -> Spoil:
    return lambda values: values["job"].update(settings)


def mixture(**datasets: Values) -> Values:
    return {"source": "mixture", "held_out_fraction": 0.01, "datasets": datasets}


_FAULTS: list[tuple[Spoil, str, str]] = [
    (remove("cloud"), "cloud", "a value, got nothing; add cloud to the stack file"),
    (
        put(f"{_SLICES}.grup", "a"),
        f"{_SLICES}.grup",
        "count, fallback, group, min_count, wait_seconds, got 'grup'; rename it to",
    ),
    (put("job.mesh", {"replica": 2, "fsdp": 8, "zebra": 1}), "job.mesh.zebra", "got 'zebra'; remove it"),
    (put("job", "tiny"), "job", "got 'tiny'; write job: {"),
    (
        put("cloud.zone", "us-east1-b"),
        "cloud.zone",
        "a zone of us-east5, which has us-east5-a, us-east5-b, us-east5-c, got 'us-east1-b'",
    ),
    (put("cluster.name", "a-very-very-long-name"), "cluster.name", "a name of at most 20 lower-case letters, digits"),
    (put("cluster.system_machine_type", "banana"), "cluster.system_machine_type", _CPUS),
    (put("cluster.system_machine_type", "ct6e-standard-4t"), "cluster.system_machine_type", _CPUS),
    (put("slices", {}), "slices", "at least one entry by name, got {}; add one to slices"),
    (put("slices.Lite", _LITE), "slices.Lite", "a name of at most 30 lower-case letters"),
    (put(f"{_GROUP}.topology", "3x3"), _GROUP, "got v6e 3x3; '3x3' is not a topology of v6e; the nearest are 2x4"),
    (put(f"{_GROUP}.machine_type", "ct6e-standard-1t"), _GROUP, "got v6e 2x4 ct6e-standard-1t; '2x4' is not"),
    (put("teams.research.quota.ironwood", 8), "teams.research.quota", "slice groups among trillium, got 'ironwood'"),
    (put(_QUOTA, 17), "teams", "quotas of trillium that add up to at most its 16 chips, got 17; lower a"),
    (put("teams.other", _OTHER_TEAM), "teams.other.namespace", "choose another; team research has this one"),
    (put(_NAMESPACE, "kueue-system"), _NAMESPACE, "a namespace of the team's own, got 'kueue"),
    (
        put("image.reference", "trainer:latest"),
        "image.reference",
        "by digest, REPOSITORY@sha256:<64 hexadecimal digits>",
    ),
    (put("image", {}), "image", "either reference (an image by digest) or build: true, got {}"),
    (put("image.build", True), "image", "either reference (an image by digest) or build: true"),
    (put("budget.alerts", {"billing_account": "my-account"}), "budget.alerts.billing_account", "billing accounts list"),
    (put("datasets", {"bucket": "gs://text"}), "datasets.bucket", "the name of a bucket, without gs://"),
    (put(f"{_SLICES}.min_count", 3), "job", "slices.min_count must be at most slices.count (2), got 3; change"),
    (
        put(f"{_GROUP}.topology", "2x2"),
        f"{_SLICES}.count",
        "1, since a 2x2 of ct6e-standard-4t has one host and GKE joins",
    ),
    (put("job.slice_failure", "continue"), "job.slice_failure", "no such setting any more, since all slices of"),
    (
        put("job.training.sync_every", 2),
        "job.training.sync_every",
        "remove it; a larger global_batch with",
    ),
    (put("cluster.ram_disk_gib", 48), "cluster.ram_disk_gib", "remove it; training.local_save_every_steps of a job"),
    (put("job.training.lost_rows", "next-step"), "job.training.lost_rows", "since every step has all rows of its"),
    (put("job.name", "x" * 27), "job.name", "a name of at most 26 lower-case letters"),
    (put("job.name", "teams"), "job", "a name other than teams, the folder of all teams in the bucket, got teams;"),
    (put(f"{_SLICES}.fallback", ["ironwood"]), f"{_SLICES}.fallback", "groups trillium, got 'ironwood'; rename it or"),
    (put(f"{_SLICES}.fallback", ["trillium"]), f"{_SLICES}.fallback", "each group once, and not job.slices.group, got"),
    (put("job.training", {"stepz": 5}), "job.training.stepz", "got 'stepz'; rename it to steps"),
    (put("job.data", {"path": "gs://b/t"}), "job.data.source", "add job.data.source to the stack file"),
    (put("job.data", mixture(web={"pth": "gs://b/t"})), "job.data.datasets.web.pth", "rename it to path"),
    (
        put("job.data", mixture(web=_TOKENS, code=_TOKENS)),
        "job.data.datasets",
        "but web and code are both gs://b/t, got",
    ),
    (put("job.data", mixture()), "job.data.datasets", "at least one dataset with a name, got {}"),
    (put("job.training", {"global_batch": 10}), "job", "training.global_batch must be a multiple of"),
    (put("job.training", {"lora": _LORA}), "job.initial_weights", "job.training.lora adapts"),
    (
        lambda values: values["job"].update(training={"lora": _LORA}, optimizer={"kind": "muon"}),
        "job.optimizer.kind",
        "adamw with job.training.lora, got muon",
    ),
    (
        put("job.mesh", {"replica": 2, "fsdp": 4}),
        "job",
        "mesh replica 2 x fsdp 4 must have the 16 devices of 2 slices of 8 devices, got 8; nearest that fit: replica 2"
        " x fsdp 8, or replica 4 x fsdp 4, or replica 2 x fsdp 4 x tensor 2; change job.slices, job.mesh,",
    ),
    (put("job.mesh", {"replica": 1, "fsdp": 16}), "job", "fsdp x tensor must divide the 8 devices of a slice"),
    (put("job.preset", "llama-3.2-1b"), "job.data", "llama-3.2-1b has no data of its own, got nothing; add job.data"),
    (_in_job(optimizer={"lerning_rate": 1}), "job.optimizer.lerning_rate", "rename it to learning_rate"),
    (_in_job(optimizer={"beta1": 0.8}, allow_changes=["beta1"]), "job.allow_changes.0", "optimizer.beta1"),
    (_in_job(optimizer={"momentum": 0.9}), "job.optimizer", "momentum needs kind muon"),
    (_in_job(optimizer={"kind": "muon"}, allow_changes=["optimizer.kind"]), "job.allow_changes.0", "momentum"),
    (_in_job(trackers={"wandb": {"project": "llm"}}), "job.trackers.wandb", "secrets.WANDB_API_KEY"),
    (_in_job(compiler_options={"--xla_flag": 1}), "job.compiler_options.--xla_flag", "--xla_flag"),
    (_in_job(libtpu_args={"megascale_a": "1 --b=2"}), "job.libtpu_args.megascale_a", "without spaces"),
    (_in_job(allow_changes=["training.seed"]), "job.allow_changes.0", "optimizer.learning_rate"),
    (_in_job(allow_changes=["optimizer.clip_norm"]), "job.allow_changes", "optimizer.clip_norm"),
    (_in_job(**_BETA1, existing_run="new"), "job.allow_changes", "resume"),
]


@pytest.mark.parametrize(
    ("spoil", "path", "words"), _FAULTS, ids=[f"{path}-{words[:12]}" for _, path, words in _FAULTS]
)
def test_a_fault_says_where_what_was_expected_what_came_and_what_to_do(
    values: Values, spoil: Spoil, path: str, words: str
) -> None:
    spoil(values)
    assert words in errors_of(values)[path]


_PATTERN = ["local", "globl"]
_STRETCHED = {"factor": 2, "low_frequency_factor": 1, "high_frequency_factor": 4, "original_length": 64}


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        (
            {"slices.trillium.topology": "3x3", "slices.trillium.count": 0, "job.preset": "huge", "job.colour": "red"}
            | {"job.slices": {"group": "ironwood", "count": 0}},
            {_GROUP, f"{_GROUP}.count", "job.slices.group", "job.slices.count", "job.preset", "job.colour"},
        ),
        ({"job.colour": "red", "teams.research.quota": {"trillium": 8}}, {"job.colour", _QUOTA}),
        ({f"{_GROUP}.count": "many"}, {f"{_GROUP}.count"}),
        (
            {"job.model": {"layers": 0, "activation": "relu", "windows": {"size": 0, "pattern": _PATTERN}, "qk": 1}}
            | {"job.training": {"steps": 0}},
            {"job.training.steps", "job.model.layers", "job.model.activation", "job.model.qk"}
            | {"job.model.windows.size", "job.model.windows.pattern.1"},
        ),
        (
            {"job.optimizer": {"beta1": 2}, "job.training": {"steps": 0}},
            {"job.optimizer.beta1", "job.training.steps"},
        ),
        ({"job.preset": "llama-3.2-1b", "job.training": {"global_batch": 10}}, {"job.data", "job"}),
    ],
    ids=[
        "in a section and in the rest of it",
        "a misspelt key and a quota that is too small",
        "a group with a fault is still one that a job may name",
        "in a decoder and in the training",
        "in optimizer and training",
        "no data and sizes that do not fit",
    ],
)
def test_no_fault_hides_another_or_leads_to_one(values: Values, changes: Values, paths: set[str]) -> None:
    assert errors_of(edited(values, changes)).keys() == paths


def test_a_plain_value_where_a_section_belongs_is_a_fault_of_its_own() -> None:
    runtime.set_all_config({"tpu-multislice:job": "tiny", "other:key": "ignored"}, [])
    with pytest.raises(SettingsError, match="job: expected .*, got 'tiny'"):
        load(pulumi.Config("tpu-multislice"))


def test_the_key_of_a_tracker_must_be_among_the_secrets_that_the_job_gets(values: Values) -> None:
    values["secrets"] = {"WANDB_API_KEY": HIDDEN, "HF_TOKEN": HIDDEN}
    values["job"] |= {"trackers": {"wandb": {"project": "llm"}}, "secrets": ["HF_TOKEN"]}
    assert errors_of(values).keys() == {"job.trackers.wandb"}


def test_all_conflicts_within_a_decoder_are_reported_at_once(values: Values) -> None:
    values["job"] |= {"model": {"query_heads": 3, "rope_scaling": _STRETCHED, "rope_linear_factor": 2}}
    with pytest.raises(SettingsError, match="query_heads must be a multiple of kv_heads .*; rope_scaling and rope_l"):
        parse(values)
