"""`multislice render` from a stack file alone, and for a cluster that options describe."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from infra.stack.job_objects import submitted_jobset
from infra.stack.published import Published
from infra.stack.settings.read import parse
from infra.stack.settings.submitted import read_submitted
from tests.infra.recording import BUILT_DIGEST, run_program, stack_values

PLACEHOLDER = "<DIGEST>"
IMAGE = f"trainer@sha256:{'1' * 64}"
JOB = "name: mine\npreset: tiny\nslices: {group: trillium, count: 2}\n"
CLUSTER = {
    "--namespace": "research",
    "--queue": "research",
    "--generation": "v6e",
    "--topology": "2x4",
    "--capacity": "on-demand",
    "--bucket": "sandbox-local-checkpoints",
    "--image": IMAGE,
    "--usd-per-chip-hour": "2.7",
}


def render(*words: str, exit_status: int = 0) -> Result:
    found = CliRunner().invoke(app, ["render", *words], env={"MULTISLICE_STACK": "", "COLUMNS": "200"})
    assert found.exit_code == exit_status, found.output
    return found


def described(file: Path, *words: str, exit_status: int = 0, **changes: str | None) -> Result:
    """The command with the options of `CLUSTER`, in which None stands for a missing one."""
    options = CLUSTER | {f"--{name}": value for name, value in changes.items()}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return render("--job-file", str(file), *given, *words, exit_status=exit_status)


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.costs(cpu_seconds=10)
@pytest.mark.parametrize(
    ("stack", "team", "job"),
    [
        ("local", "research", "tiny"),
        ("dev", "research", "tiny"),
        ("staging", "research", "rehearsal"),
        ("prod", "pretraining", "pretrain"),
    ],
)
def test_the_objects_of_a_job_are_those_that_up_declares(stack: str, team: str, job: str) -> None:
    found = render("-s", stack, job)
    text = found.stdout.replace(f"sha256:{PLACEHOLDER}", BUILT_DIGEST)
    declared = {each.name: each.inputs for each in run_program(stack_values(stack)).registrations}
    names = {"LocalQueue": f"queue-{team}.{job}", "ConfigMap": f"price-{job}", "JobSet": f"job-{job}"}
    expected = [{"apiVersion": "v1", "kind": kind} | declared.get(name, {}) for kind, name in names.items()]
    assert [*yaml.safe_load_all(text)] == [each for each in expected if "metadata" in each]
    # Only the image of dev is built, so that only its digest is unknown.
    assert (PLACEHOLDER in found.stdout) == (PLACEHOLDER in found.stderr) == (stack == "dev")
    assert ("multislice up -s dev" in found.stderr) == (stack == "dev")


def test_secrets_and_runs_of_a_sweep_are_rendered_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: Any = {f"tpu-multislice:{name}": value for name, value in stack_values("local").items() if name != "job"}
    job = {"preset": "tiny", "slices": {"group": "trillium", "count": 1}, "sweep": {"training.seed": [0, 1]}}
    values |= {"tpu-multislice:jobs": {"seeds": job}, "tpu-multislice:secrets": {"HF_TOKEN": {"secure": "v1:a:b"}}}
    values["tpu-multislice:cluster"]["encryption_key"] = (
        "projects/my-project/locations/us-east5/keyRings/multislice/cryptoKeys/secrets"
    )
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: mine\nruntime: python\n")
    (tmp_path / "stacks" / "Pulumi.mine.yaml").write_text(yaml.safe_dump({"config": values}))
    monkeypatch.chdir(tmp_path)
    found = render("-s", "mine", "seeds")
    objects = [(each["kind"], each["metadata"]["name"], each) for each in yaml.safe_load_all(found.stdout)]
    assert [name for kind, name, _ in objects if kind == "JobSet"] == ["seeds-0", "seeds-1"]
    secrets = [each["stringData"] for kind, _, each in objects if kind == "Secret"]
    assert secrets == [{"HF_TOKEN": "<HF_TOKEN>"}] * 2
    (line,) = found.stderr.splitlines()
    assert line.startswith("<HF_TOKEN>: value of a secret in Pulumi's configuration")
    *_, only = yaml.safe_load_all(render("-s", "mine", "seeds-1").stdout)
    assert only == objects[-1][2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-s", "local", "tiney"], "did you mean tiny?"),
        (["-s", "local", "other"], "expected one of the jobs in stacks/Pulumi.local.yaml (tiny), got 'other'"),
        (["-s", "lokal", "tiny"], "did you mean local?"),
        (["-s", "local", "tiny", "--priority", "high"], "got tiny --priority"),
        (["-s", "local", "tiny", "other"], "got tiny other"),
    ],
)
def test_a_job_that_no_stack_file_has_is_refused(words: list[str], says: str) -> None:
    found = render(*words, exit_status=1)
    assert (says in found.stderr, found.stdout) == (True, "")


def test_the_jobset_for_a_described_cluster_is_the_one_that_a_member_submits(job_file: Path) -> None:
    (made,) = yaml.safe_load_all(described(job_file, "--restarts-slices").stdout)
    record = Published.of("local", parse(stack_values("local")), "research", IMAGE)
    section = {key: value for key, value in yaml.safe_load(JOB).items() if key != "name"}
    settings = read_submitted("mine", section, record)
    assert made == submitted_jobset(record, settings, settings.jobs["mine"])


def test_each_option_of_a_described_cluster_is_in_the_jobset(job_file: Path) -> None:
    changes: dict[str, Any] = {
        "namespace": "mine",
        "queue": "batch",
        "generation": "v5p",
        "topology": "v5p-32",
        "usd-per-chip-hour": None,
    }
    found = described(job_file, "--service-account", "runner", bucket="my-files", **changes)
    (made,) = yaml.safe_load_all(found.stdout)
    (slices,) = made["spec"]["replicatedJobs"]
    pods = slices["template"]["spec"]["template"]["spec"]
    variables = {each["name"]: each for each in pods["containers"][0]["env"]}
    assert made["metadata"]["namespace"] == "mine"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "batch"
    assert (pods["serviceAccountName"], pods["containers"][0]["image"]) == ("runner", IMAGE)
    assert pods["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "tpu-v5p-slice"
    assert pods["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x2x4"
    assert '"path":"gs://my-files/teams/mine/jobs/mine"' in variables["JOB_SPEC"]["value"]
    assert "value" not in variables["USD_PER_HOUR"]
    # JobSet refuses this action without a feature gate, so it is only used if an option says that the cluster has it.
    assert "RestartJob" not in {rule["action"] for rule in made["spec"]["failurePolicy"]["rules"]}


def test_capacity_is_written_as_in_a_stack_file(job_file: Path) -> None:
    job_file.write_text(JOB.replace("count: 2", "count: 1"))
    found = described(job_file, capacity="{kind: queued, max_run_hours: 4}")
    (made,) = yaml.safe_load_all(found.stdout)
    assert made["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "14400"
    assert "max_run_hours" in described(job_file, capacity="flex-start", exit_status=1).stderr


def test_a_container_job_with_an_image_needs_no_other(job_file: Path) -> None:
    job_file.write_text(f"name: mine\nkind: container\nimage: {IMAGE}\nslices: {{group: trillium, count: 1}}\n")
    assert IMAGE in described(job_file, image=None).stdout


def test_all_missing_options_are_named_at_once_with_the_errors_of_the_file(job_file: Path) -> None:
    job_file.write_text(JOB + "max_hours: 4h\npresett: tiny\nsecrets: [TOKEN]\n")
    found = render("--job-file", str(job_file), exit_status=1)
    missing = [name for name in CLUSTER if name != "--usd-per-chip-hour"]
    assert [name for name in missing if f"{name}: expected a value, got nothing" not in found.stderr] == []
    assert [
        word for word in ("max_hours: expected", "presett", "secrets: ", "10 errors") if word not in found.stderr
    ] == []
    assert found.stdout == ""
    other = render("--queue", "research", "-n", "research", exit_status=1).stderr
    assert [
        name for name in ("--job-file", *missing) if name not in ("--queue", "--namespace") and name not in other
    ] == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"topology": "3x3"}, ["--topology: expected a slice that GKE offers, got v6e 3x3"]),
        ({"generation": "v9"}, ["--topology: expected a slice that GKE offers, got v9 2x4"]),
        (
            {"bucket": "gs://mine/", "queue": "A_B"},
            ["--bucket: expected the name of a bucket", "--queue: did you mean a-b?"],
        ),
        (
            {"image": "trainer:latest", "usd-per-chip-hour": "0"},
            ["--image: expected an image by digest", "--usd-per-chip-hour: expected "],
        ),
        ({"capacity": "{kind: flex-start"}, ["--capacity: "]),
        ({"service-account": "Me"}, ["--service-account: did you mean me?"]),
    ],
)
def test_wrong_options_are_reported_together_with_the_errors_of_the_file(
    changes: dict[str, str], says: list[str], job_file: Path
) -> None:
    job_file.write_text(JOB + "max_hours: 4h\n")
    found = described(job_file, exit_status=1, **changes)
    missing = [
        words for words in (*says, "max_hours: expected", f"{len(says) + 1} errors") if words not in found.stderr
    ]
    assert missing == [], found.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("preset: tiny\n", ["name: expected the name of the job", "--queue: expected a value"]),
        ("[", ["expected YAML", "--queue: expected a value"]),
        (JOB.replace("trillium", "My Slices"), ["slices.group: ", "--queue: expected a value"]),
        (JOB.replace("tiny", "tiny\npreset: tiny"), ["the key 'preset' is also in line", "--queue: expected a value"]),
        (JOB + "team: other\n", ["team: expected one of the teams"]),
    ],
)
def test_a_file_that_is_no_job_hides_no_error_of_an_option(text: str, says: list[str], job_file: Path) -> None:
    job_file.write_text(text)
    found = described(job_file, exit_status=1, queue=None)
    assert [words for words in says if words not in found.stderr] == [], found.stderr


@pytest.mark.parametrize("words", [["job.yaml"], ["--priority", "high"], ["--context", "mine"], ["-s", "local"]])
def test_a_job_file_leaves_nothing_for_other_words(words: list[str], job_file: Path) -> None:
    assert words[0] in described(job_file, *words, exit_status=1).stderr.replace("--stack", "-s")
