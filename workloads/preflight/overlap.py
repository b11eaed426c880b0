"""How long a program waits for other slices.

Owns a replay of the schedule: transfers queue for one link, in the order in which they are issued, and
the program waits where it needs a result that has not come. A loop's transfers do not queue with those
around it; latency and the slices' different pace are left out. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from workloads.preflight.hlo import Computation, Module
from workloads.preflight.loops import Schedule

_RENDEZVOUS = r'_xla_host_transfer_rendezvous="([^"]*)"'


@dataclass(frozen=True)
class _Replay:
    seconds: float
    """Of one run, waits included."""
    waits: float
    """Of one run."""


def exposed_seconds(
    module: Module, schedule: Schedule, seconds: Mapping[str, float], sends: Mapping[str, float]
) -> float:
    """Waits of one step, when an instruction takes `seconds[name]`, and a send the link to other slices for
    `sends[name]`."""

    def replay(computation: Computation) -> _Replay:
        now = waits = link_free = 0.0
        arrivals: dict[str, float] = {}
        for instruction in computation.instructions:
            now += seconds.get(instruction.name, 0.0)
            rendezvous = instruction.attribute(_RENDEZVOUS)
            if instruction.opcode == "while":
                body = instruction.called["body"]
                trips = schedule.runs[body].times / schedule.runs[computation.name].times
                inner = replay(module.computations[body])
                now += trips * inner.seconds
                waits += trips * inner.waits
            elif instruction.name in sends and rendezvous:
                link_free = max(now, link_free) + sends[instruction.name]
                arrivals[rendezvous] = link_free
            elif instruction.opcode == "recv-done":
                receive = computation.by_name.get(instruction.operands[0])
                arrival = arrivals.get((receive and receive.attribute(_RENDEZVOUS)) or "", 0.0)
                waits += max(0.0, arrival - now)
                now = max(now, arrival)
        return _Replay(now, waits)

    return replay(next(each for each in module.computations.values() if each.entry)).waits
