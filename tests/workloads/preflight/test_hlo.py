from tests.workloads.preflight.texts import SCAN, module
from workloads.preflight.hlo import parse, shapes_in


def test_sizes_of_element_types() -> None:
    shapes = shapes_in("(bf16[2,3], f32[], pred[8], s4[16], f8e4m3fn[5]{0:T(8)}, token[])")
    assert [shape.size for shape in shapes] == [12, 4, 8, 8, 5, 0]


def test_a_kernel_s_metadata_may_hold_line_breaks() -> None:
    parsed = module(
        "%a = f32[2] parameter(0)",
        '%call = f32[2] custom-call(%a), frontend_attributes={kernel_metadata={\n"block": "512"\n}}, backend_config={}',
        "%b = f32[2] negate(%call)",
    )
    call, last = parsed.computations["main"].instructions[-2:]
    assert (call.opcode, call.operands, last.root) == ("custom-call", ("a",), True)
    assert '"block": "512"' in call.attributes


def test_a_computation_of_a_sparse_core_ends_like_any_other() -> None:
    offloaded = '%gather (a: f32[2]) -> f32[2] {\n  ROOT %a = f32[2] parameter(0)\n}, execution_thread="sparsecore"\n'
    assert list(module("%b = f32[2] parameter(0)", computations=offloaded).computations) == ["gather", "main"]


def test_an_estimate_near_the_largest_integer_is_none() -> None:
    cycles = '%a = f32[2] parameter(0), backend_config={{"window_config":{{"estimated_cycles":"{}"}}}}'

    def estimated(value: int) -> int:
        return module(cycles.format(value)).computations["main"].root.estimated_cycles

    assert (estimated(287349), estimated(9223372036854775807)) == (287349, 0)


def test_an_instruction_knows_the_line_that_it_comes_from() -> None:
    parsed = parse(SCAN)
    matmul = parsed.computations["wide.region_0.1_spmd.sunk"].by_name["fusion.11"]
    assert list(parsed.sources.stack(matmul)) == [
        ("/job/program.py", "step.<locals>.layer", 10),
        ("/job/program.py", "step", 11),
        ("/job/program.py", "step", 11),
        ("/job/program.py", "step", 11),
        ("/job/program.py", "<module>", 17),
    ]
