"""Rules of networks and clusters that exist already."""

from infra.stack.settings.read import parse
from tests.infra.recording import stack_values
from tests.infra.spoiling import edited
from tests.infra.stack.settings.faults import FOUND


def test_names_in_an_existing_cluster_have_the_prefix_of_the_stack() -> None:
    settings = parse(edited(stack_values("dev"), {"cluster": FOUND}))
    assert settings.cluster.existing is not None
    assert (settings.cluster.existing.jobset, settings.cluster.existing.kueue) == ("found", "found")
    assert settings.checkpoint_bucket == "my-project-research-checkpoints"
