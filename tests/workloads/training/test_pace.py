from workloads.training.pace import Pace, compare


def paces(*host_seconds: float) -> list[Pace]:
    return [Pace(f"host-{index}", 50, 1.0, seconds) for index, seconds in enumerate(host_seconds)]


def test_the_host_that_keeps_the_others_waiting_is_named() -> None:
    found = compare(paces(0.01, 0.3, 0.02, 0.01))
    assert (found.slowest, found.straggles, found.hosts) == ("host-1", True, 4)


def test_small_differences_make_no_straggler() -> None:
    assert not compare(paces(0.01, 0.05, 0.02)).straggles
    assert not compare(paces(0.5)).straggles
