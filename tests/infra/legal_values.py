"""Stack files that must be accepted, for tests that hold for each of them."""

from math import gcd
from typing import Any

from hypothesis import strategies as st

from infra.stack.cost import list_rate
from infra.stack.tpu import BLOCK_GENERATION, CHIPS_PER_BLOCK, CHIPS_PER_SUB_BLOCK, SliceShape, all_shapes
from tests.infra.recording import Values, stack_values

_WEIGHT_ROWS = 64
"""Divides the first dimension of every matrix of the preset."""
_NAMES = st.from_regex(r"[a-z]{1,63}", fullmatch=True)


def _capacities(shape: SliceShape, count: int) -> st.SearchStrategy[str | Values]:
    """Whatever capacity GKE has for so many slices."""
    parts: Values = {}
    if shape.generation == BLOCK_GENERATION and count * shape.chips <= CHIPS_PER_BLOCK:
        parts["block"] = _NAMES
    if parts and count * shape.chips <= CHIPS_PER_SUB_BLOCK:
        parts["sub_block"] = _NAMES
    plain: st.SearchStrategy[str | Values] = st.sampled_from(["on-demand", "spot"])
    reserved = st.fixed_dictionaries(
        {"kind": st.just("reservation"), "name": _NAMES},
        optional={"project": st.from_regex(r"[a-z]{6,30}", fullmatch=True)},
    )
    divided = st.fixed_dictionaries({"kind": st.just("reservation"), "name": _NAMES, **parts})
    if not shape.flex_start:
        return plain | reserved | divided
    hours = st.floats(0.17, 168) | st.integers(1, 168)
    on_request = st.fixed_dictionaries({"kind": st.sampled_from(["flex-start", "queued"]), "max_run_hours": hours})
    return plain | reserved | divided | on_request


@st.composite
def legal_values(draw: st.DrawFn) -> Values:
    """Stack files with any slice of any capacity, at any length of name."""
    shape: SliceShape = draw(st.sampled_from(all_shapes()))
    count = draw(st.integers(1, 40)) if shape.multi_host else 1
    capacity = draw(_capacities(shape, count))
    # A queued request brings one slice.
    used = 1 if isinstance(capacity, dict) and capacity["kind"] == "queued" else count
    values: dict[str, Any] = stack_values("dev")
    group, team, job = (draw(st.from_regex(rf"[a-z]{{1,{limit}}}", fullmatch=True)) for limit in (30, 36, 26))
    values["cloud"]["project"] = draw(st.from_regex(r"[a-z]{6,30}", fullmatch=True))
    values["cluster"]["name"] = draw(st.from_regex(r"[a-z]{1,20}", fullmatch=True))
    values["slices"] = {
        group: {
            "generation": shape.generation,
            "topology": shape.topology,
            "machine_type": shape.machine_type,
            "count": count,
            "capacity": capacity,
        }
    }
    cloud, kind = values["cloud"], capacity if isinstance(capacity, str) else capacity["kind"]
    listed = list_rate(shape.generation, cloud["region"], cloud["zone"], kind).usd_per_chip_hour is not None
    # Nothing is bought on demand at an unknown price.
    if draw(st.booleans()) or (kind == "on-demand" and not listed):
        values["prices"] = {"usd_per_chip_hour": {group: draw(st.floats(0.01, 100))}}
    # Room for the largest slices in the largest number, and for the controllers that know all their hosts.
    values["cluster"] |= {"system_machine_type": "n2-highmem-32", "system_nodes": 2}
    values["network"] = {"nodes": "10.0.0.0/14", "pods": "10.128.0.0/9", "services": "10.4.0.0/20"}
    values["network"]["second_nodes"] = "10.8.0.0/14"
    values["teams"] = {team: {"namespace": "people", "quota": {group: count * shape.chips}}}
    values["job"] |= {"name": job, "team": team, "slices": {"group": group, "count": used}}
    values["job"]["training"] = {"global_batch": used * shape.devices}
    fsdp = gcd(shape.devices, _WEIGHT_ROWS)
    values["job"]["mesh"] = {"replica": used * shape.devices // fsdp, "fsdp": fsdp}
    return values
