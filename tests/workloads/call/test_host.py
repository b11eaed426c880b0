"""Calls as the image runs them: real processes, joined by JAX, on CPU devices."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import ROOT
from tests.workloads.call.running import SECONDS, TWO_SLICES, carried_out, hosts_of, submitted, without_proxy
from tests.workloads.hosts import first_code
from workloads.call.folder import FUNCTION
from workloads.spec import ExitCode

WRONG_PRODUCTS = """
from workloads.training import slice_check
products = slice_check.products
slice_check.products = lambda *given: [(name, product + 1) for name, product in products(*given)]
"""
"""First code of every process."""

pytestmark = pytest.mark.timeout(SECONDS + 60)


@pytest.mark.costs(cpu_seconds=15)
def test_every_host_runs_the_function_with_jax_joined_and_the_leaders_value_comes_back(tmp_path: Path) -> None:
    def summed(scale: int) -> dict[str, Any]:
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        assert jax.distributed.is_initialized()
        mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        local = np.arange(jax.local_device_count(), dtype=np.float32) + 10 * jax.process_index()
        rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), local)
        total = jax.jit(lambda x: scale * x.sum())(rows).block_until_ready()
        # Like a progress bar, it does not end its line.
        print(f"process {jax.process_index()} of {jax.process_count()}", end="")
        return {"sum": total, "devices": jax.device_count()}

    called = carried_out(submitted(tmp_path / "call", summed, 2, slices=TWO_SLICES), tmp_path / "logs")
    assert called.codes == [0, 0]
    value = called.result()
    assert (type(value["sum"]).__module__, float(value["sum"]), value["devices"]) == ("numpy", 2 * (0 + 1 + 10 + 11), 4)
    assert [line for line in called.printed if "WARNING" not in line] == ["process 0 of 2"]


def test_what_was_changed_on_the_way_is_not_opened(tmp_path: Path) -> None:
    spec = submitted(tmp_path / "call", print, "opened")
    part = tmp_path / "call" / FUNCTION
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    called = carried_out(spec, tmp_path / "logs")
    assert called.codes == [ExitCode.INVALID_SPEC]
    assert not called.printed
    assert "function.pkl: expected SHA-256" in called.failure


def test_modules_of_the_project_are_found_in_the_folders_that_were_shipped(tmp_path: Path) -> None:
    package = tmp_path / "project" / "recipes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import multislice\n@multislice.run('dev', slices='any')\ndef one(): return 1\n"
    )
    (package / "words.txt").write_text("hello")

    def read() -> Any:
        import pathlib

        import recipes  # pyright: ignore[reportMissingImports]

        return recipes.one(), pathlib.Path("recipes/words.txt").read_text()

    called = carried_out(submitted(tmp_path / "call", read, ships=[package]), tmp_path / "logs")
    assert called.result() == (1, "hello")


def test_a_function_that_takes_too_long_is_ended_and_shown_where_it_was(tmp_path: Path) -> None:
    def stands_still() -> None:
        time.sleep(SECONDS)

    called = carried_out(submitted(tmp_path / "call", stands_still, max_hours=0.001), tmp_path / "logs")
    assert (called.codes, called.outcome) == ([ExitCode.HANG], None)
    assert "max_hours" in called.failure
    assert "in stands_still" in called.failure


@pytest.mark.costs(cpu_seconds=15)
def test_a_host_that_waits_for_one_that_has_returned_is_ended_and_shown_where_it_was(tmp_path: Path) -> None:
    def leaves_early() -> None:
        import jax
        from jax.experimental.multihost_utils import sync_global_devices

        if jax.process_index() == 0:
            sync_global_devices("the last batch")

    spec = submitted(tmp_path / "call", leaves_early, slices=TWO_SLICES, return_minutes=0.05)
    called = carried_out(spec, tmp_path / "logs")
    assert (called.codes, called.outcome) == ([ExitCode.HANG] * 2, None)
    assert "has returned on slice-1-0" in called.failure
    assert "in leaves_early" in called.failure


@pytest.mark.complete
def test_hosts_that_wait_for_each_other_in_different_places_are_ended_and_shown_where_they_were(tmp_path: Path) -> None:
    def waits() -> None:
        import threading

        import jax
        from jax.experimental.multihost_utils import sync_global_devices

        if jax.process_index() == 0:
            sync_global_devices("one")
        else:
            threading.Event().wait()

    spec = submitted(tmp_path / "call", waits, slices=TWO_SLICES, hang_minutes=0.05)
    called = carried_out(spec, tmp_path / "logs")
    assert (called.codes, called.outcome) == ([ExitCode.HANG] * 2, None)
    assert "no host has moved for 0.05 minutes" in called.failure
    assert all("in waits" in log for log in called.logs)


def test_a_host_whose_chips_multiply_wrongly_does_not_begin_the_function(tmp_path: Path) -> None:
    spec = submitted(tmp_path / "call", print, "begun", check_slices=True)
    called = carried_out(spec, tmp_path / "logs", first_code(tmp_path / "site", WRONG_PRODUCTS))
    assert called.codes[0] in (ExitCode.BAD_HOST, ExitCode.CRASH)
    assert not called.printed
    assert "rows of the product are wrong" in called.failure


def test_a_host_ends_at_once_on_sigterm(tmp_path: Path) -> None:
    def waits() -> None:
        print("waiting", flush=True)
        time.sleep(SECONDS)

    with hosts_of(submitted(tmp_path / "call", waits), tmp_path / "logs") as hosts:
        for line in hosts.follow():
            if line == "waiting":
                hosts.leader.process.send_signal(signal.SIGTERM)
        assert hosts.leader.process.wait() == ExitCode.PREEMPTED


def seen() -> tuple[int, int]:
    import jax

    return jax.process_count(), jax.device_count()


def test_by_pathways_the_function_runs_once_with_the_devices_of_all_hosts(tmp_path: Path) -> None:
    spec = submitted(tmp_path / "call", seen, slices=TWO_SLICES, backend="pathways")
    called = carried_out(spec, tmp_path / "logs", without_proxy(tmp_path / "site"))
    assert called.codes == [0]
    assert called.result() == (1, TWO_SLICES.devices)


def test_what_the_function_raises_on_the_head_is_raised_as_from_the_head(tmp_path: Path) -> None:
    def raises() -> None:
        raise LookupError("no such row")

    spec = submitted(tmp_path / "call", raises, slices=TWO_SLICES, backend="pathways")
    called = carried_out(spec, tmp_path / "logs", without_proxy(tmp_path / "site"))
    assert called.codes == [ExitCode.FUNCTION_RAISED]
    with pytest.raises(LookupError) as found:
        called.result()
    message = str(found.value.__cause__)
    assert message.startswith("on head-0-0:")
    assert 'raise LookupError("no such row")' in message
    assert str(ROOT / "workloads") not in message


def test_a_head_that_gets_other_devices_than_those_of_its_slices_does_not_begin(tmp_path: Path) -> None:
    spec = submitted(tmp_path / "call", print, "begun", slices=TWO_SLICES, backend="pathways")
    fewer = without_proxy(tmp_path / "site") | {"JAX_NUM_CPU_DEVICES": "2"}
    called = carried_out(spec, tmp_path / "logs", fewer)
    assert called.codes != [0]
    assert not called.printed
    assert "expected the 4 devices of all slices from Pathways, got 2" in called.failure


def test_an_image_without_googles_package_is_reported(tmp_path: Path) -> None:
    without = first_code(tmp_path / "site", "import sys; sys.modules['pathwaysutils'] = None\n")
    called = carried_out(submitted(tmp_path / "call", print, backend="pathways"), tmp_path / "logs", without)
    assert called.codes == [ExitCode.INVALID_SPEC]
    assert "needs the package pathwaysutils in the image" in called.failure


def test_a_specification_that_is_not_valid_is_reported_before_anything_is_loaded(tmp_path: Path) -> None:
    spec = submitted(tmp_path / "call", print).model_copy(update={"public_key": "short"})
    with hosts_of(spec, tmp_path / "logs") as hosts:
        assert hosts.leader.process.wait() == ExitCode.INVALID_SPEC
        assert "public_key" in hosts.leader.log.read_text()
