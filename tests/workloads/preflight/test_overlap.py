import pytest

from tests.workloads.preflight.texts import loop, module
from workloads.preflight.loops import schedule
from workloads.preflight.overlap import exposed_seconds
from workloads.preflight.traffic import transfers

MEGABYTE_PER_SECOND = 1e6


def send(name: str, megabytes: int) -> str:
    rendezvous = (
        f'frontend_attributes={{_xla_host_transfer_rendezvous="{name}",_xla_megascale_transfer_type="ALL_REDUCE"}}'
    )
    return (
        f"%{name}_send = (s8[{megabytes}000000], u32[], token[]) send(%a), is_host_transfer=true, {rendezvous}\n"
        f"  %{name}_recv = (s8[{megabytes}000000], u32[], token[]) recv(%a), is_host_transfer=true, {rendezvous}"
    )


def done(name: str) -> str:
    return f"%{name}_done = (s8[1], token[]) recv-done(%{name}_recv), is_host_transfer=true"


def waits(*instructions: str, computations: str = "", **seconds: float) -> float:
    parsed = module("%a = s8[1] parameter(0)", *instructions, computations=computations)
    runs = schedule(parsed)
    sends = {each.name: each.sent_bytes / MEGABYTE_PER_SECOND for each in transfers(parsed, runs)}
    return exposed_seconds(parsed, runs, seconds, sends)


def work(name: str) -> str:
    return f"%{name} = f32[] negate(%a)"


@pytest.mark.parametrize(("compute", "exposed"), [(0.0, 5.0), (3.0, 2.0), (8.0, 0.0)])
def test_what_is_computed_before_the_result_is_needed_hides_a_transfer(compute: float, exposed: float) -> None:
    assert waits(send("x", 5), work("compute"), done("x"), compute=compute) == exposed


def test_transfers_share_one_link() -> None:
    assert waits(send("x", 5), send("y", 2), work("compute"), done("y"), done("x"), compute=4) == 3


def test_a_wait_in_a_loop_counts_for_each_trip() -> None:
    body = "".join(f"  {line}\n" for line in ("%a = s8[1] negate(%counter)", send("x", 5), work("compute"), done("x")))
    computations, begin, run = loop("loop", 0, 7, 1, "LT", body=body)

    assert waits(begin, run, computations=computations, compute=4) == 7
    # What goes on around the loop is hidden behind all of its trips.
    outer = (send("y", 36), begin, run, done("y"))
    assert waits(*outer, computations=computations, compute=4) == 7 + 1
