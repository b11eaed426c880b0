"""Rule of the system nodes: whether they hold JobSet's and Kueue's controllers."""

from collections.abc import Iterator

from infra.controllers import controller_request, machine_size
from infra.faults import Fault
from infra.rules.draft import Draft, Shapes

_CONTROLLERS = 2
_SHARE = 2
"""One part of so many of a machine is theirs; the rest is GKE's own."""


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """The fault of a machine type that is too small for the number of hosts."""
    machine = machine_size(draft.cluster.system_machine_type) if draft.cluster else None
    if draft.cluster is None or machine is None:
        return
    hosts = sum(draft.slices[name].hosts for name in shapes)
    on_one_node = _CONTROLLERS if draft.cluster.system_nodes == 1 else 1
    wanted = controller_request(hosts)
    millicores, memory_mib = wanted.millicores * on_one_node, wanted.memory_mib * on_one_node
    if millicores * _SHARE > machine.millicores or memory_mib * _SHARE > machine.memory_mib:
        told = "JobSet's and Kueue's controllers" if on_one_node > 1 else "the controllers of JobSet and Kueue each"
        yield Fault(
            "cluster.system_machine_type",
            f"a machine with at least {millicores * _SHARE / 1000:g} vCPUs and {memory_mib * _SHARE / 1024:.1f} GiB,"
            f" half of which {told} request for {hosts} TPU hosts",
            draft.cluster.system_machine_type,
            "write a larger one",
        )
