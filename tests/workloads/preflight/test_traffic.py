import pytest

from tests.workloads.preflight.texts import loop, module
from workloads.preflight.hlo import Module
from workloads.preflight.loops import schedule
from workloads.preflight.traffic import (
    Collective,
    Kind,
    Total,
    Transfer,
    collectives,
    dcn_totals,
    exposed_seconds,
    ici_totals,
    transfers,
)


def found(parsed: Module) -> tuple[Collective, ...]:
    return collectives(parsed, schedule(parsed))


def sent(parsed: Module) -> tuple[Transfer, ...]:
    return transfers(parsed, schedule(parsed))


@pytest.mark.parametrize(
    ("instruction", "wire_bytes"),
    [
        ("f32[64] all-gather(%a), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}", 256 * 3 / 4),
        ("f32[64] all-reduce(%a), replica_groups=[2,8]<=[16], to_apply=%add", 2 * 256 * 7 / 8),
        ("f32[64] reduce-scatter(%a), replica_groups={{0,1,2,3}}, dimensions={0}", 256 * 3),
        ("f32[64] all-to-all(%a), replica_groups={}, dimensions={0}", 256 * 15 / 16),
        ("f32[64] collective-permute(%a), source_target_pairs={{0,1},{1,0}}", 256),
        ("(f32[64], f32[32]) all-reduce(%a, %a), replica_groups={{0,1}}, to_apply=%add", 384),
        ("(f32[16], f32[64]) all-gather-start(%a), replica_groups={{0,1,2,3}}, dimensions={0}", 256 * 3 / 4),
        ("(f32[16], f32[16], u32[], u32[]) collective-permute-start(%a), source_target_pairs={{0,1}}", 64),
        ("f32[16] all-reduce-start(%a), replica_groups={{0,1}}, to_apply=%add", 64),
    ],
)
def test_bytes_on_the_wire_are_those_of_a_ring_and_what_is_started_does_not_block(
    instruction: str, wire_bytes: float
) -> None:
    (each,) = found(module("%a = f32[16] parameter(0)", f"%each = {instruction}"))
    assert (each.wire_bytes, each.blocking) == (wire_bytes, "-start(" not in instruction)


@pytest.mark.parametrize(
    "caller",
    [
        "%call = f32[64] fusion(%a), kind=kCustom, calls=%inner",
        '%call = ((), (), (s32[1])) call-start(), async_execution_thread="sparsecore", to_apply=%inner',
    ],
)
def test_a_collective_in_a_fusion_or_on_a_sparse_core_counts_and_does_not_block(caller: str) -> None:
    gather = "all-gather(%a), replica_groups={{0,1,2,3}}, dimensions={0}"
    inner = f"%inner (a: f32[16]) -> f32[64] {{\n  %a = f32[16] parameter(0)\n  ROOT %each = f32[64] {gather}\n}}\n"
    (each,) = found(module("%a = f32[16] parameter(0)", caller, computations=inner))
    assert (each.times, each.wire_bytes, each.blocking) == (1, 192, False)


def test_a_collective_that_is_spread_over_fusions_counts_once() -> None:
    gather = "f32[64] all-gather(%a), channel_id=9, replica_groups={{0,1,2,3}}, dimensions={0}"

    def part(name: str, last: str) -> str:
        return f"%{name} (a: f32[16]) -> f32[64] {{\n  %a = f32[16] parameter(0)\n  %gather = {gather}\n{last}}}\n\n"

    parts = [
        part("begin", '  ROOT %b = (f32[64]) custom-call(%gather), custom_call_target="AsyncCollectiveStart"\n'),
        part("continue", "  ROOT %c = (f32[64]) tuple(%gather)\n"),
        part("end", '  ROOT %e = f32[64] custom-call(%gather), custom_call_target="AsyncCollectiveDone"\n'),
    ]
    (each,) = found(
        module(
            "%a = f32[16] parameter(0)",
            "%first = f32[64] fusion(%a), kind=kCustom, calls=%begin",
            '%next = f32[64] fusion(%a), kind=kOutput, calls=%continue, backend_config={"continuation_config":{}}',
            "%last = f32[64] fusion(%a), kind=kCustom, calls=%end",
            computations="".join(parts),
        )
    )
    assert (each.times, each.result_bytes, each.blocking) == (1, 256, False)


def test_collectives_that_share_a_channel_all_count() -> None:
    scatter = "f32[4] reduce-scatter(%a), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}"
    parsed = module("%a = f32[16] parameter(0)", f"%first = {scatter}", f"%second = {scatter}")
    assert ici_totals(found(parsed)) == {Kind.REDUCE_SCATTER: Total(2, 32, 96)}


def test_a_send_in_a_loop_counts_for_each_trip() -> None:
    send = (
        "  %send = (bf16[8,128], u32[], token[]) send(%counter, %counter), is_host_transfer=true,"
        ' frontend_attributes={_xla_megascale_transfer_type="ALL_TO_ALL"}\n'
    )
    computations, begin, run = loop("loop", 0, 7, 1, "LT", body=send)
    assert dcn_totals(sent(module(begin, run, computations=computations))) == {
        "ALL_TO_ALL": Total(7, 7 * 2048, 7 * 2048)
    }


def test_a_send_to_the_own_host_is_no_transfer_between_slices() -> None:
    assert not sent(
        module("%a = f32[4] parameter(0)", "%send = (f32[4], u32[], token[]) send(%a), is_host_transfer=true")
    )


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
    # A transfer around the loop is hidden behind all of its iterations.
    outer = (send("y", 36), begin, run, done("y"))
    assert waits(*outer, computations=computations, compute=4) == 7 + 1
