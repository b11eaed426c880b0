"""The job's secrets as the program declares them."""

from typing import Any

from pulumi.runtime import rpc

from tests.infra.recording import Recording, Values, run_program

CANARY = "hf_canary"
SECRET = "kubernetes:core/v1:Secret"
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-ablation")


def _program(values: Values, *names: str) -> Recording:
    return run_program(values | {"secrets": dict.fromkeys(names, CANARY)}, secret=["secrets"])


def test_secrets_are_one_object_in_the_namespace_of_the_jobs_team(two_teams: Values) -> None:
    program = _program(two_teams, "HF_TOKEN", "WANDB_API_KEY")
    (found,) = program.starting(SECRET, "secrets-")
    assert found.inputs["metadata"] == {"name": "ablation-secrets", "namespace": "research"}
    assert rpc.is_rpc_secret(found.inputs["stringData"])
    assert found.inputs["stringData"]["value"] == {"HF_TOKEN": CANARY, "WANDB_API_KEY": CANARY}
    assert found.urn in program.closure(program.named(*JOB))


def test_pods_take_each_variable_by_reference_and_nothing_else_changes(two_teams: Values) -> None:
    def container(program: Recording) -> Any:
        job = program.named(*JOB).inputs["spec"]["replicatedJobs"][0]["template"]["spec"]
        return job["template"]["spec"]["containers"][0]

    without, with_secrets = container(run_program(two_teams)), container(_program(two_teams, "WANDB_API_KEY"))
    reference = {"secretKeyRef": {"name": "ablation-secrets", "key": "WANDB_API_KEY"}}
    added = [variable for variable in with_secrets["env"] if variable not in without["env"]]
    assert added == [{"name": "WANDB_API_KEY", "valueFrom": reference}]
    assert with_secrets | {"env": without["env"]} == without


def test_a_value_is_in_no_other_resource_and_no_output(two_teams: Values) -> None:
    program = _program(two_teams, "HF_TOKEN")
    others = [found.inputs for found in program.registrations if found.type != SECRET]
    assert CANARY not in f"{others}{program.exports}"


def test_a_stack_without_secrets_declares_none(two_teams: Values) -> None:
    assert run_program(two_teams | {"secrets": {}}).starting(SECRET, "secrets-") == []
