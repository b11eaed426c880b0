"""Members of a team, and what is declared for them. What they may do is asked of a real API server in tests/chain."""

from typing import Any

from tests.infra.recording import Recording, Values, run_program

RBAC = "kubernetes:rbac.authorization.k8s.io/v1"


def test_each_member_is_bound_to_the_role_of_the_namespace(program: Recording) -> None:
    inputs: Any = program.named(f"{RBAC}:RoleBinding", "members-research-binding").inputs
    assert inputs["metadata"]["namespace"] == "research"
    assert [(subject["kind"], subject["name"]) for subject in inputs["subjects"]] == [
        ("User", "ada@example.com"),
        ("User", "trainer@my-project.iam.gserviceaccount.com"),
        ("Group", "research@example.com"),
    ]
    role = program.named(f"{RBAC}:Role", "members-research").inputs
    assert role["metadata"] == inputs["metadata"]
    assert inputs["roleRef"]["name"] == role["metadata"]["name"]


def test_nobody_is_bound_where_nobody_is_named(values: Values) -> None:
    bindings: Any = [found.inputs for found in run_program(values).of_type(f"{RBAC}:RoleBinding")]
    assert {subject["kind"] for binding in bindings for subject in binding["subjects"]} == {"ServiceAccount"}


def test_nothing_of_the_stack_gives_people_rights_in_the_whole_cluster(program: Recording) -> None:
    rights = [found for found in program.registrations if ":ClusterRole" in found.type]
    # Trainers mark their own node; an admission policy holds them to that.
    # Of collectors an account reads the controllers' metrics, see tests/infra/monitoring/test_collection.py.
    readers = {f"{name}-metrics-reader-of-collectors" for name in ("jobset", "kueue")}
    assert {found.inputs["metadata"]["name"] for found in rights} == {"trainer-marks-bad-host", *readers}
    subjects = [subject for found in rights for subject in found.inputs.get("subjects", ())]
    told = {(subject["kind"], subject["name"]) for subject in subjects}
    assert told == {("ServiceAccount", "trainer"), ("ServiceAccount", "metrics-reader")}


def test_an_account_of_trainers_mounts_its_token_nowhere_unasked(program: Recording) -> None:
    accounts = program.of_type("kubernetes:core/v1:ServiceAccount")
    assert {account.inputs["metadata"]["name"] for account in accounts} == {"trainer", "metrics-reader"}
    assert all(account.inputs["automountServiceAccountToken"] is False for account in accounts)


def test_gke_asks_google_who_is_in_a_group_where_there_is_one_of_all_teams(program: Recording, values: Values) -> None:
    def groups(recording: Recording) -> Any:
        return recording.named("gcp:container/cluster:Cluster", "cluster").inputs.get("authenticatorGroupsConfig")

    assert groups(program) == {"securityGroup": "gke-security-groups@example.com"}
    assert groups(run_program(values)) is None
