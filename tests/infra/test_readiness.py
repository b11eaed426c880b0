"""What must be true of a stack before it is brought up."""

from tests.infra.recording import run_program, stack_values


def test_a_stack_with_placeholders_declares_what_refuses_them_ahead_of_all_that_costs() -> None:
    program = run_program(stack_values("dev"))
    (record,) = (each for each in program.of_type("pulumi:index:Stash") if each.name == "placeholders")
    for costly in ("gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"):
        assert all(record.urn in program.closure(each) for each in program.of_type(costly))
