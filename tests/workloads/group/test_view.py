"""`workloads.group.view`: the register of views."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from etils import epath

from workloads.group.view import Endpoint, HostId, Register, Registered, View


def registered(number: int, one: int) -> Registered:
    return Registered(View(number, (one,), one, {3: one}), {HostId(one, 0): Endpoint(str(one), "a:1", "b:2")})


def test_only_the_first_of_many_that_create_a_view_succeeds(tmp_path: Path):
    def create(number: int, one: int) -> bool:
        return Register(epath.Path(tmp_path), "run", 0).create(registered(number, one))

    for number in range(1, 40):
        with ThreadPoolExecutor(8) as pool:
            made = [*pool.map(create, [number] * 8, range(8))]

        assert sum(made) == 1
        assert Register(epath.Path(tmp_path), "run", 0).newest() == registered(number, made.index(True))


def test_views_of_another_attempt_do_not_count(tmp_path: Path):
    Register(epath.Path(tmp_path), "run", 0).create(registered(1, 0))

    assert Register(epath.Path(tmp_path), "run", 1).newest() is None
    assert Register(epath.Path(tmp_path), "run", 0).newest(after=1) is None
