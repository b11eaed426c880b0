"""Changes of jobs, most of which make them wrong."""

from infra.stack.settings.read import read_values
from infra.stack.settings.submitted import read_submitted
from infra.stack.settings.values import HIDDEN
from tests.infra.one_job import unnamed
from tests.infra.recording import Values
from tests.infra.stack.settings.faults import GROUP, MACHINE, TOTAL, Faults, dev
from tests.infra.stack.settings.test_containers import with_container
from tests.infra.stack.settings.test_jobs import CONTAINER, several_jobs
from tests.infra.stack.settings.test_submitted import CONTAINER as SUBMITTED
from tests.infra.stack.settings.test_submitted import published
from tests.infra.stack.test_pathways import IMAGES, on_one_host, stack_with
from workloads.spec import METRICS_PORT

_TOKENS, _LORA = {"path": "gs://b/t", "weight": 1}, {"rank": 8, "alpha": 16}
_BETA1 = {"job.optimizer": {"beta1": 0.8}, "job.allow_changes": ["optimizer.beta1"]}
_STRETCHED = {"factor": 2, "low_frequency_factor": 1, "high_frequency_factor": 4, "original_length": 64}
_WINDOWS = {"size": 0, "pattern": ["local", "globl"]}


def _mixture(**datasets: Values) -> Values:
    return {"source": "mixture", "held_out_fraction": 0.01, "datasets": datasets}


OF_TRAINING: list[Values] = [
    {"job": "tiny"},
    *({"job.name": name} for name in ("x" * 27, "teams", "Tiny", "tiny ")),
    {"job.existing_run": "new"},
    {"job.preset": "llama-3-8b"},
    {"job.team": "reserch"},
    *({"job.max_hours": hours} for hours in ("24", "4h", "inf")),
    {"job.secrets": "ONE, TWO"},
    {"job.records": True},
    {"job.backend": "pathways"},
    {"job.kind": "container"},
    {"job.sweep": {"training.seed": [0, 1]}},
    {"job.slice_failure": "continue"},
    {"job.slices.grup": "a"},
    {"job.slices.group": "trilium"},
    {"job.slices.min_count": 3},
    {"job.slices.fallback": ["ironwood"]},
    {"job.slices.fallback": ["trillium"]},
    {"job.mesh": "2x8"},
    {"job.mesh": {"replica": 2, "fsdp": 8, "zebra": 1}},
    {"job.mesh": {"replica": 2, "fsdp": 4}},
    {"job.mesh": {"replica": 1, "fsdp": 16}},
    {"job.training": {"stepz": 5}},
    *({"job.training": {"steps": steps}} for steps in ("1e9", "1M")),
    {"job.training": {"global_batch": 10}},
    {"job.training": {"lora": _LORA}},
    {"job.training": {"lora": _LORA}, "job.optimizer": {"kind": "muon"}},
    {"job.training.sync_every": 2},
    {"job.training.lost_rows": "next-step"},
    {"job.data": {"path": "gs://b/t"}},
    {"job.data": {"source": "token-file", "path": "/home/me/tokens", "held_out_fraction": 0.1}},
    {"job.data": {"source": "python-stdlib", "max_bytes": 9, "held_out_fraction": "1%"}},
    {"job.data": _mixture(web={"pth": "gs://b/t"})},
    {"job.data": _mixture(web=_TOKENS, code=_TOKENS)},
    {"job.data": _mixture()},
    {"job.preset": "llama-3.2-1b"},
    {"job.preset": "llama-3.2-1b", "job.training": {"global_batch": 10}},
    {"job.model": {"query_heads": 3, "rope_scaling": _STRETCHED, "rope_linear_factor": 2}},
    {"job.model": {"layers": 0, "activation": "relu", "windows": _WINDOWS, "qk": 1}, "job.training": {"steps": 0}},
    {"job.optimizer": {"beta1": 2}, "job.training": {"steps": 0}},
    {"job.optimizer": {"lerning_rate": 1}},
    {"job.optimizer": {"beta1": 0.8}, "job.allow_changes": ["beta1"]},
    {"job.optimizer": {"momentum": 0.9}},
    {"job.optimizer": {"kind": "muon"}, "job.allow_changes": ["optimizer.kind"]},
    {"job.allow_changes": ["training.seed"]},
    {"job.allow_changes": ["optimizer.clip_norm"]},
    _BETA1 | {"job.existing_run": "new"},
    {"job.trackers": {"wandb": {"project": "llm"}}},
    {"job.trackers": {"wandb": {"project": "llm"}}, "secrets": {"HF_TOKEN": HIDDEN, "WANDB_API_KEY": HIDDEN}}
    | {"job.secrets": ["HF_TOKEN"]},
    {"job.compiler_options": {"--xla_flag": 1}},
    {"job.libtpu_args": {"megascale_a": "1 --b=2"}},
]

OF_JOBS: list[Values] = [
    {"job": {"name": "other"}},
    {"jobs": []},
    {"jobs": {"Big": CONTAINER}},
    {"jobs": {"a": "nothing", "b": {"kind": "contaner"}}},
    # 32 chips of 2.70 USD for 100 hours, 16 for 5, and 16 of 4.50 for 10.
    {TOTAL: 9000},
    {TOTAL: 8640 + 216 + 360, "jobs.serve.max_hours": ...},
]
OF_ONE_OF_THEM: list[Values] = [
    {"name": "a"},
    {"kind": "batch"},
    {"team": "sales"},
    {"image": "sweep:1"},
    {"env": {"2a": ""}},
    {"env": {"TPU_NAME": ""}},
    {"ports": {"web_1": 80}},
    {"ports": {"web": 8431}},
    {"secrets": ["TOKEN"]},
    {"slices": {"group": "ironwood", "count": 3}, "team": "research"},
    {"slices": {"group": "single", "count": 1}, "team": "research"},
]


def _volume(path: str, size_gib: int = 1, **more: str) -> Values:
    return {"path": path, "size_gib": size_gib, **more}


_FILE = {"file": "/tmp/alive", "silence_seconds": 300}
OF_CONTAINERS: list[Values] = [
    *({"volumes": {"a": _volume(path)}} for path in ("cache", "/a/../tmp", "/tmp", "/proc/1")),
    {"volumes": {"a": _volume("/a"), "b": _volume("/a")}},
    {"volumes": {"a": _volume("/a", 51)}},
    {"volumes": {"a": _volume("/a", 600, medium="memory")}},
    {"resources": {"vcpus": 170}},
    {"resources": {"memory_gib": 700}},
    {"env": {"N": 3}},
    {"command": "python x"},
    {"heartbeat": {"file": "alive", "silence_seconds": 60}},
    {"heartbeat": {"silence_seconds": 60}},
    {"heartbeat": {**_FILE, "port": "http"}},
    {"heartbeat": {**_FILE, "path": "/healthz"}},
    {"heartbeat": {"port": "grpc", "silence_seconds": 60}},
    {"heartbeat": {**_FILE, "file": "/var/alive"}},
    {"heartbeat": {"port": "http", "path": "healthz", "silence_seconds": 60}},
    {"check_slices": True},
    {"records": True, "ports": {"metrics": 8000}},
    {"records": True, "ports": {"other": METRICS_PORT}},
    {"slice_failure": "continue"},
]
_SERVE = "jobs.serve"
_PROXY = IMAGES["proxy_image"].partition("@")[0]
_HEAD_ON_ONE_HOST = {f"{_SERVE}.pathways.head_vcpus": 8}
_ONE_CHIP = {f"{GROUP}.topology": "1x1", f"{GROUP}.machine_type": "ct6e-standard-1t"}
OF_PATHWAYS: list[Values] = [
    {f"{_SERVE}.pathways": ...},
    {f"{_SERVE}.backend": "direct"},
    {f"{_SERVE}.pathways.proxy_image": f"{_PROXY}:latest"},
    {f"{_SERVE}.pathways.proxy_image": ...},
    {f"{_SERVE}.volumes": {"a": _volume("/a", 218, medium="memory")}},
    {f"{_SERVE}.resources": {"vcpus": 8}},
    {f"{_SERVE}.check_slices": True},
    {f"{_SERVE}.records": True},
    {MACHINE: "e2-standard-4", "scheduling.placement": "topology-aware", f"{_SERVE}.slices.min_count": 1}
    | {f"{_SERVE}.env": {"JAX_PLATFORMS": "tpu"}, f"{_SERVE}.ports": {"mine": 29001}},
]


def _swept(**changes: object) -> Values:
    """The training job of the stack as the sweep `study`."""
    values = dev()
    slices = {"slices": {"group": "trillium", "count": 1}}
    return values | {"jobs": {"study": unnamed(values) | slices | {"sweep": {"training.seed": [0, 1]}} | changes}}


OF_SWEEPS: list[Values] = [
    {"sweep": {}},
    *({"sweep": {"training.seed": seeds}} for seeds in ([], 1, [1, 2, 1])),
    {"sweep": {"team": ["research"]}},
    {"sweep": {"training.seed": [*range(13)], "training.global_batch": [64, 128, 256, 512, 1024]}},
    {"sweep": {"training.sead": [1, 2]}},
    {"sweep": {"slices.count": ["one", 1]}},
]


def _starter() -> Values:
    place = {"project": "acme", "region": "us-east5", "zone": "us-east5-b"}
    return place | {"generation": "v5p", "topology": "2x2x2"}


_EIGHT = {"quota": {"v5p": 8}}
OF_STARTERS: list[Values] = [
    {"teams": {name: {"namespace": name, **_EIGHT} for name in ("a", "b")}},
    {"slices": {"big": {"generation": "v5p", "topology": "2x2x2", "count": 2, "capacity": "spot"}}},
    {"zone": ..., "budget": {"alerts": {}}},
    {"capacity": "cheap", "teams": {"a": {}}},
    {"project": "Acme", "topology": "9x9"},
    {"project": "Acme", "region": "us-west1"},
    {"project": "Acme", "bugdet": {}},
    {"generation": ..., "teams": {"a": {"namespace": "a", **_EIGHT}}},
    {"project": "Acme", "job": {"preset": "tiny", "slices": {"group": "v5p", "count": 1}, "max_hours": "4h"}},
    {"topology": ..., "topolgy": "2x2x2"},
]
OF_SUBMITTED: list[Values] = [
    {"paused": True},
    {"privileged": True},
    {"run_as_user": 0},
    {"host_network": True},
    {"team": "sales"},
    {"secrets": ["TOKEN"]},
    {"priority": "urgent", "max_hours": "4h", "slices": 3, "paused": True},
    {"backend": "pathways", "pathways": IMAGES},
]

OF_JOBS_AND_FILES = (
    Faults("a training job", dev, "", OF_TRAINING),
    Faults("several jobs", several_jobs, "", OF_JOBS),
    Faults("one of several jobs", several_jobs, "jobs.serve.", OF_ONE_OF_THEM),
    Faults("a container", lambda: with_container(dev()), "jobs.serve.", OF_CONTAINERS),
    Faults("a container that drives all slices by Pathways", lambda: stack_with(dev()), "", OF_PATHWAYS),
    Faults(
        "one that shares its host",
        lambda: on_one_host(dev()),
        "",
        [_HEAD_ON_ONE_HOST, _HEAD_ON_ONE_HOST | _ONE_CHIP],
    ),
    Faults("a starter", _starter, "", OF_STARTERS, lambda values: read_values(values, "first")),
    Faults(
        "a submitted job", lambda: SUBMITTED, "", OF_SUBMITTED, lambda job: read_submitted("mine", job, published())
    ),
    Faults("a sweep", _swept, "jobs.study.", OF_SWEEPS),
)
