"""Calculates what a program sends: collectives within a slice (ICI) and transfers between slices (DCN)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from workloads.preflight.hlo import Computation, Instruction, Module, Shape
from workloads.preflight.loops import Schedule

_COLLECTIVE_ENDS = 'custom_call_target="AsyncCollectiveDone"'
_COLLECTIVE_CONTINUES = '"continuation_config"'


class Kind(StrEnum):
    """A collective over ICI, by its name in HLO."""

    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    PERMUTE = "collective-permute"


@dataclass(frozen=True)
class Collective:
    """One collective instruction over ICI."""

    name: str
    kind: Kind
    times: int
    chips: int
    """Number of chips in one group."""
    result_bytes: int
    """Bytes of the result of one run."""
    wire_bytes: float
    """Bytes that a chip sends in one run, by the cost of a ring."""
    blocking: bool
    """Whether the program waits for it, because it is neither split into start and done nor part of a fusion."""
    op_name: str


@dataclass(frozen=True)
class Transfer:
    """One send to other slices."""

    name: str
    kind: str
    """Name in the megascale runtime, such as ALL_REDUCE."""
    times: int
    sent_bytes: int
    """Bytes that a chip hands over in one run. A sum over more than two slices sends more (`estimate`)."""
    op_name: str


@dataclass(frozen=True)
class Total:
    """Total of one kind of transfer for one chip and step."""

    count: int
    """Number of runs."""
    result_bytes: int
    sent_bytes: float


def collectives(module: Module, schedule: Schedule) -> tuple[Collective, ...]:
    """Return every collective over ICI that runs. Each instruction counts, because several may share a channel.

    A collective that the compiler spreads over fusions is in each of them: in the one that begins it, in those that
    continue it while they compute something else, and in the one that ends it. It counts where it begins.
    """
    later_parts = _later_parts(module)
    found: list[Collective] = []
    for runs, computation, instruction in schedule.instructions(module):
        base = instruction.opcode.removesuffix("-start")
        if base not in set(Kind) or computation.name in later_parts:
            continue
        kind, asynchronous = Kind(base), instruction.opcode != base
        result = sum(shape.size for shape in _results(instruction, kind, asynchronous))
        chips = _group_size(instruction, module.partitions)
        found.append(
            Collective(
                name=instruction.name,
                kind=kind,
                times=runs.times,
                chips=chips,
                result_bytes=result,
                wire_bytes=_ring_bytes(kind, result, chips),
                blocking=not (asynchronous or runs.fused),
                op_name=instruction.op_name,
            )
        )
    return tuple(found)


def transfers(module: Module, schedule: Schedule) -> tuple[Transfer, ...]:
    """Return every send to other slices that runs."""
    return tuple(
        Transfer(
            name=instruction.name,
            kind=instruction.attribute(r'_xla_megascale_transfer_type="(\w+)"') or "unknown",
            times=runs.times,
            # The rest of the result is the context and a token.
            sent_bytes=instruction.shapes[0].size,
            op_name=instruction.op_name,
        )
        for runs, _, instruction in schedule.instructions(module)
        if instruction.opcode == "send"
        and "is_host_transfer=true" in instruction.attributes
        and "_xla_megascale_" in instruction.attributes
    )


def ici_totals(found: tuple[Collective, ...]) -> Mapping[Kind, Total]:
    """Return the totals by kind, without kinds that do not occur."""
    return _by_kind((each.kind, each.times, each.result_bytes, each.wire_bytes) for each in found)


def dcn_totals(found: tuple[Transfer, ...]) -> Mapping[str, Total]:
    """Return the totals by the names of the megascale runtime."""
    return _by_kind((each.kind, each.times, each.sent_bytes, each.sent_bytes) for each in found)


def _by_kind[K: str](found: Iterable[tuple[K, int, int, float]]) -> Mapping[K, Total]:
    """Return totals of instructions, each with its kind, its runs, and the result and sent bytes of one run."""
    grouped: dict[K, list[tuple[int, int, float]]] = defaultdict(list)
    for kind, times, result_bytes, sent_bytes in found:
        grouped[kind].append((times, times * result_bytes, times * sent_bytes))
    return {kind: Total(*map(sum, zip(*group, strict=True))) for kind, group in sorted(grouped.items())}


def _later_parts(module: Module) -> set[str]:
    """Return the fused computations that continue or end a collective."""
    instructions = [(name, each) for name, one in module.computations.items() for each in one.instructions]
    ends = {name for name, each in instructions if _COLLECTIVE_ENDS in each.attributes}
    return ends | {each.called["calls"] for _, each in instructions if _COLLECTIVE_CONTINUES in each.attributes}


def _results(instruction: Instruction, kind: Kind, asynchronous: bool) -> tuple[Shape, ...]:
    """Return the results of a collective, without the operands and contexts that the tuple of its start also has."""
    if not asynchronous or kind is Kind.ALL_REDUCE:
        return instruction.shapes
    operands = len(instruction.operands)
    return instruction.shapes[operands : 2 * operands]


def _group_size(instruction: Instruction, partitions: int) -> int:
    if listed := instruction.attribute(r"replica_groups=\{\{([\d,]+)\}"):
        return listed.count(",") + 1
    return int(instruction.attribute(r"replica_groups=\[\d+,(\d+)\]") or partitions)


def _ring_bytes(kind: Kind, result: int, chips: int) -> float:
    """Return the bytes that a chip sends if a collective with `result` bytes goes around a ring of `chips`."""
    share = (chips - 1) / chips
    match kind:
        case Kind.ALL_GATHER | Kind.ALL_TO_ALL:
            return result * share
        case Kind.ALL_REDUCE:
            return 2 * result * share
        case Kind.REDUCE_SCATTER:
            return result * (chips - 1)
        case Kind.PERMUTE:
            return result


_RENDEZVOUS = r'_xla_host_transfer_rendezvous="([^"]*)"'


def exposed_seconds(
    module: Module, schedule: Schedule, seconds: Mapping[str, float], sends: Mapping[str, float]
) -> float:
    """Return the seconds that one step waits for other slices.

    An instruction takes `seconds[name]`, and a send occupies the link to other slices for `sends[name]`.
    """

    def replay(computation: Computation) -> tuple[float, float]:
        """Return the time of one run, including waits, and the time that it waits."""
        now = waits = link_free = 0.0
        arrivals: dict[str, float] = {}
        for instruction in computation.instructions:
            now += seconds.get(instruction.name, 0.0)
            rendezvous = instruction.attribute(_RENDEZVOUS)
            if instruction.opcode == "while":
                body = instruction.called["body"]
                trips = schedule.runs[body].times / schedule.runs[computation.name].times
                inner_seconds, inner_waits = replay(module.computations[body])
                now += trips * inner_seconds
                waits += trips * inner_waits
            elif instruction.name in sends and rendezvous:
                link_free = max(now, link_free) + sends[instruction.name]
                arrivals[rendezvous] = link_free
            elif instruction.opcode == "recv-done":
                receive = computation.by_name.get(instruction.operands[0])
                arrival = arrivals.get((receive and receive.attribute(_RENDEZVOUS)) or "", 0.0)
                waits += max(0.0, arrival - now)
                now = max(now, arrival)
        return now, waits

    return replay(next(each for each in module.computations.values() if each.entry))[1]
