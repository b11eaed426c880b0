"""A function is called on a slice that the shared job leaves free; `test_functions` calls it in every way."""

from typing import Any

import pytest

import multislice
from multislice import CallGone
from tests.chain.stack import PATIENCE_SECONDS, Chain


def place_of_processes(scale: int) -> dict[str, Any]:
    import jax
    from jax.experimental.multihost_utils import process_allgather

    print(f"process {jax.process_index()} sees {jax.device_count()} devices", flush=True)
    gathered = process_allgather(scale * jax.process_index())
    return {"processes": [int(index) for index in gathered]}


def test_a_call_goes_on_without_its_caller_and_is_found_again_by_its_name(stack: Chain) -> None:
    function = multislice.run("local", "trillium", team="research", sandbox=stack.site.root)(place_of_processes)
    started = function.start(1)
    call = multislice.attach(started.id, stack="local", team="research", sandbox=stack.site.root)
    assert call.result(PATIENCE_SECONDS) == {"processes": [0, 1]}
    assert call.logs().splitlines()[0] == "process 0 sees 8 devices"
    with pytest.raises(CallGone, match="has no call"):
        multislice.attach("no-such-call", stack="local", team="research", sandbox=stack.site.root)
