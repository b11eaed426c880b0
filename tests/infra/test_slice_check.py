"""The init container that checks the devices before a program that is not the trainer."""

from typing import Any

import pytest

from infra.jobset import render
from infra.settings.errors import SettingsError
from infra.settings.read import parse
from infra.submission import submission
from tests.infra.recording import Values
from tests.infra.test_container_rights import PATHWAYS_JOB
from tests.infra.test_containers import pod_of, with_container
from tests.infra.test_jobs import told
from workloads.spec import SliceSpec

TRAINER = f"us-east5-docker.pkg.dev/my-project/multislice-dev/trainer@sha256:{'3' * 64}"


def _rendered(values: Values, **changes: object) -> Any:
    settings = parse(with_container(values, **changes) | {"image": {"reference": TRAINER}})
    return render(submission(settings, settings.jobs["serve"], TRAINER))


def test_it_has_the_trainers_image_and_all_that_the_program_gets_of_the_host(values: Values) -> None:
    pod = pod_of(_rendered(values, check_slices=True))
    (check,), (program,) = pod["initContainers"], pod["containers"]
    assert check["image"] == TRAINER
    assert check["resources"] == program["resources"]
    assert check["securityContext"] == program["securityContext"]


def test_it_knows_its_slices_and_where_its_host_is_without_gkes_webhook(values: Values) -> None:
    (check,) = pod_of(_rendered(values, check_slices=True))["initContainers"]
    variables = {each["name"]: each.get("value") or each["valueFrom"] for each in check["env"]}
    slices = SliceSpec.model_validate_json(variables["CHECKED_SLICES"])
    assert (slices.count, slices.hosts) == (2, 2)
    hosts = variables["TPU_WORKER_HOSTNAMES"].split(",")
    assert hosts == [f"serve-slice-$(MEGASCALE_SLICE_ID)-{host}.serve" for host in range(2)]
    index = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert variables["TPU_WORKER_ID"] == {"fieldRef": {"fieldPath": index}}


def test_its_failure_is_told_with_the_pod(values: Values) -> None:
    (replicated,) = _rendered(values, check_slices=True)["spec"]["replicatedJobs"]
    rules = replicated["template"]["spec"]["podFailurePolicy"]["rules"]
    named = [rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule]
    assert named == ["slice-check", "program"]


def test_without_it_a_program_starts_at_once(values: Values) -> None:
    assert "initContainers" not in pod_of(_rendered(values))


def test_it_needs_the_trainers_image(values: Values) -> None:
    with pytest.raises(SettingsError, match="image: expected a value, got nothing"):
        parse(with_container(values, check_slices=True))


def test_it_is_refused_where_the_servers_of_pathways_hold_the_chips(values: Values) -> None:
    stack = with_container(values, check_slices=True, **PATHWAYS_JOB) | {"image": {"reference": TRAINER}}
    assert "whose servers hold the chips" in told(stack)["jobs.serve.check_slices"]
