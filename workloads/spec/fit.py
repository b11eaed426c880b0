"""Checks whether a job's sizes fit its mesh, and finds meshes that they fit.

This is arithmetic on the specifications. It does not check memory.
"""

from collections.abc import Iterator, Sequence
from math import isqrt, log2

from workloads.spec.model import ModelSpec
from workloads.spec.slices import MeshSpec, SliceSpec
from workloads.spec.training import Attention, TrainingSpec

NAMED_MESHES = 3
"""Largest number of legal meshes that a message suggests."""


def size_faults(slices: SliceSpec, mesh: MeshSpec, model: ModelSpec, training: TrainingSpec) -> list[str]:
    """Return a message for each size that does not fit, and the legal meshes nearest to `mesh`. Empty if all fit."""
    faults = [*_faults(slices, mesh, model, training)]
    return [*faults, *_advice(slices, mesh, model, training)] if faults else []


def kernel_faults(model: ModelSpec, kernel: Attention) -> list[str]:
    """Return messages about parts of the model that the kernel cannot compute. `splash` and `reference` compute all."""
    parts = {"model.windows": model.windows, "model.attention_soft_cap": model.attention_soft_cap}
    if kernel != "fused":
        return []
    return [
        f"training.attention must be splash or reference with {name}, which fused cannot compute"
        for name, part in parts.items()
        if part
    ]


def legal_meshes(slices: SliceSpec, model: ModelSpec, training: TrainingSpec) -> list[MeshSpec]:
    """Return every mesh of the slices that the job's sizes fit."""
    devices = slices.devices
    inner = [(fsdp, tensor) for fsdp in _divisors(slices.devices_per_slice) for tensor in _divisors(devices // fsdp)]
    meshes = [
        MeshSpec(replica=devices // (stage * fsdp * tensor), stage=stage, fsdp=fsdp, tensor=tensor)
        for fsdp, tensor in inner
        for stage in _divisors(devices // (fsdp * tensor))
    ]
    return [mesh for mesh in meshes if not any(_faults(slices, mesh, model, training))]


def _faults(slices: SliceSpec, mesh: MeshSpec, model: ModelSpec, training: TrainingSpec) -> Iterator[str]:
    yield from _place_faults(slices, mesh)
    yield from _weight_faults(mesh, model, training)
    yield from _token_faults(slices, mesh, training)


def _place_faults(slices: SliceSpec, mesh: MeshSpec) -> Iterator[str]:
    """Check that `fsdp` and `tensor` stay inside a slice, and that a stage is inside one or made of whole slices."""
    here = f"{slices.count} {'slice' if slices.count == 1 else 'slices'} of {slices.devices_per_slice} devices"
    if mesh.devices != slices.devices:
        yield f"mesh {mesh} must have the {slices.devices} devices of {here}, got {mesh.devices}"
        return
    groups, rest = divmod(slices.devices_per_slice, mesh.fsdp * mesh.tensor)
    if rest:
        yield (
            f"mesh: fsdp x tensor must divide the {slices.devices_per_slice} devices of a slice so that neither"
            f" leaves it, got {mesh.fsdp} x {mesh.tensor}"
        )
    elif groups % mesh.stage and mesh.stage % groups:
        yield (
            f"mesh.stage must divide the {groups} groups of fsdp x tensor devices in a slice, or be a multiple"
            f" of them, got {mesh.stage}"
        )


def _weight_faults(mesh: MeshSpec, model: ModelSpec, training: TrainingSpec) -> Iterator[str]:
    rows = mesh.fsdp * mesh.tensor
    inner = f"mesh.fsdp x mesh.tensor ({rows})" if mesh.tensor > 1 else f"mesh.fsdp ({rows})"
    splits = {
        "layers": _layers(mesh, model),
        "kv_heads": (model.kv_heads, mesh.tensor, f"mesh.tensor ({mesh.tensor})"),
        "vocab_size": (model.vocab_size, rows, inner),
        "embed_dim": (model.embed_dim, mesh.fsdp, f"mesh.fsdp ({mesh.fsdp})"),
        "mlp_dim": (model.mlp_dim, rows, inner),
        "query_heads x head_dim": (model.query_heads * model.head_dim, rows, inner),
    }
    if training.lora and "query_key_value" in training.lora.targets:
        # Full weights are split over `fsdp` by rows. Adapters are not, so the columns must divide too.
        columns = (model.query_heads + 2 * model.kv_heads) * model.head_dim
        splits["(query_heads + 2 x kv_heads) x head_dim"] = (columns, rows, f"{inner} with training.lora")
    for name, (size, parts, unit) in splits.items():
        if size % parts:
            yield f"model.{name} must be a multiple of {unit}, got {size}"


def _layers(mesh: MeshSpec, model: ModelSpec) -> tuple[int, int, str]:
    """Return the divisor of the number of layers with which all stages hold the same kinds of layers in one order."""
    period, stages = len(model.pattern), f"mesh.stage ({mesh.stage})"
    if mesh.stage == 1 or period == 1:
        return model.layers, mesh.stage, stages
    return model.layers, mesh.stage * period, f"{stages} x layers of model.windows.pattern ({period})"


def _token_faults(slices: SliceSpec, mesh: MeshSpec, training: TrainingSpec) -> Iterator[str]:
    parts = mesh.data_shards * training.accumulation
    if slices.min_count is None and training.global_batch % parts:
        unit = "mesh.replica x mesh.fsdp" + (" x accumulation" if training.accumulation > 1 else "")
        yield f"training.global_batch must be a multiple of {unit} ({parts}), got {training.global_batch}"
    positions = mesh.tensor * mesh.stage
    if training.sequence_length % positions:
        yield (
            f"training.sequence_length must be a multiple of mesh.tensor x mesh.stage ({positions}),"
            f" got {training.sequence_length}"
        )
    if mesh.stage > 1 and training.gather_weights != "each-step":
        yield (
            "training.gather_weights must be each-step with mesh.stage above 1, or the weights would be gathered for"
            f" each microbatch, got {training.gather_weights}"
        )


def _advice(slices: SliceSpec, mesh: MeshSpec, model: ModelSpec, training: TrainingSpec) -> list[str]:
    near = {"nearest that fit": _nearest(legal_meshes(slices, model, training), mesh)}
    if mesh.stage > 1 and training.gather_weights != "each-step":
        # Otherwise, a job that asks for a pipeline would get no suggestion with one.
        each_step = training.model_copy(update={"gather_weights": "each-step"})
        pipelines = [choice for choice in legal_meshes(slices, model, each_step) if choice.stage > 1]
        near["nearest with stages, using training.gather_weights each-step"] = _nearest(pipelines, mesh)
    return [f"{title}: {', or '.join(map(str, meshes))}" for title, meshes in near.items() if meshes] or [
        f"no mesh of these {slices.devices} devices fits the job's sizes; change one of the sizes above"
    ]


def _nearest(legal: Sequence[MeshSpec], mesh: MeshSpec) -> list[MeshSpec]:
    return sorted(legal, key=lambda choice: distance(choice, mesh))[:NAMED_MESHES]


def distance(one: MeshSpec, other: MeshSpec) -> tuple[float, int, Sequence[int]]:
    """Return a sort key for the distance of two meshes.

    Of two meshes at equal distance, the one without pipeline and tensor parallelism counts as nearer.
    """
    pairs = zip(one.sizes.values(), other.sizes.values(), strict=True)
    return sum(abs(log2(a) - log2(b)) for a, b in pairs), one.stage * one.tensor, tuple(one.sizes.values())


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})
