from tests.workloads.preflight.texts import loop
from workloads.preflight.arrays import biggest_arrays
from workloads.preflight_result import BigArray

GIB = 1 << 30
HEAD = "HloModule test, num_partitions=16\n\n"


def live_ranges(**sizes: int) -> str:
    lines = "".join(f"    {name}: {size} bytes (cumulative: 0 bytes)\n" for name, size in sizes.items())
    return (
        f"HloLiveRange (max 3):\n  Live ranges at 2 (peak):\n{lines}  Stack trace breakdown for peak usage: 0 bytes\n"
    )


def entry(*lines: str) -> str:
    *body, last = lines
    return "ENTRY %main (a: f32[]) -> f32[] {\n" + "".join(f"  {line}\n" for line in [*body, f"ROOT {last}"]) + "}\n"


def named(name: str) -> str:
    return f'metadata={{op_name="{name}"}}'


def test_an_array_is_named_by_what_makes_it() -> None:
    text = HEAD + entry(
        "%a = f32[] parameter(0)",
        f"%scores = f32[4,8192,8192] broadcast(%a), {named('jit(f)/transpose(jvp())/scores')}",
        # The compiler's own instruction has no name, but its operand has.
        "%gathered = f32[16,512] all-gather(%scores)",
    )
    found = biggest_arrays(text, live_ranges(**{"scores{}": GIB, "gathered{}": GIB // 2}))
    assert found == (
        BigArray(what="backward, scores", shape="f32[4,8192,8192]", gib=1.0),
        BigArray(what="backward, scores", shape="f32[16,512]", gib=0.5),
    )


def test_the_training_state_is_one_row_and_equal_arrays_are_another() -> None:
    state = [f"%p{index} = f32[64] parameter({index}), {named(f'state.optimizer[{index}]')}" for index in range(3)]
    state.append(f"%w = bf16[64] parameter(3), {named("frozen['blocks']['gate']")}")
    twins = [f"%t{index} = f32[32] negate(%p0), {named('jit(f)/jvp()/neg')}" for index in range(2)]
    found = biggest_arrays(
        HEAD + entry(*state, *twins),
        live_ranges(
            **{f"p{index}{{}}": GIB for index in range(3)},
            **{f"t{index}{{}}": GIB for index in range(2)},
            **{"w{}": GIB},
        ),
    )
    assert [(each.what, each.shape, each.gib) for each in found] == [
        ("training state", "3 arrays", 3.0),
        ("forward, neg", "2 x f32[32]", 2.0),
        ("frozen weights", "1 arrays", 1.0),
    ]


def test_what_a_loop_carries_is_named_by_what_fills_it() -> None:
    computations, begin, run = loop("layers", 0, 3, 1, "LT")
    filled = f"%filled = f32[3,64] fusion(%counter), {named('jit(f)/jvp()/while/body/kept')}"
    computations = computations.replace(
        "  ROOT %out = (s32[]) tuple(%next)", f"  {filled}\n  ROOT %out = (s32[], f32[3,64]) tuple(%next, %filled)"
    ).replace("%carried = (s32[]) parameter(0)", "%carried = (s32[], f32[3,64]) parameter(0)", 1)
    body, condition = computations.split("%layers_condition")
    computations = f"{body}%layers_condition{condition.replace('carried', 'asked')}"
    run = run.replace("(s32[]) while", "(s32[], f32[3,64]) while")
    found = biggest_arrays(
        HEAD + computations + entry(begin, run), live_ranges(**{"carried{1}": GIB, "layers{1}": GIB})
    )
    assert found == (BigArray(what="forward, kept", shape="2 x f32[3,64]", gib=2.0),)


def test_without_a_list_of_buffers_nothing_is_named() -> None:
    assert biggest_arrays(HEAD + entry("%a = f32[] parameter(0)"), "HloLiveRange (max 3):\n") == ()
