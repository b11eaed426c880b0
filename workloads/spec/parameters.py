"""Counts the weights of a model, from its sizes."""

from collections.abc import Mapping

from workloads.spec.model import ModelSpec
from workloads.spec.training import LoraSpec, OptimizerSpec


def matrix_parameters(model: ModelSpec) -> int:
    """Return the number of weights that each token is multiplied with.

    These are all matrices and the output table, but not the embedding table, and only the experts that a token goes to.
    """
    return _matrices(model, model.experts.per_token if model.experts else 1)


def total_parameters(model: ModelSpec) -> int:
    """Return the number of all weights of the model."""
    of_heads = 2 * model.head_dim if model.query_key_norm else 0
    of_layer = (4 if model.output_norms else 2) * model.embed_dim + of_heads
    norm_scales = model.layers * of_layer + model.embed_dim
    input_table = 0 if model.tied_embedding else model.vocab_size * model.embed_dim
    return _matrices(model, model.experts.count if model.experts else 1) + norm_scales + input_table


def _matrices(model: ModelSpec, mlps: int) -> int:
    """Return the number of weights of all matrices and of the output table, with `mlps` MLPs per layer."""
    router = model.embed_dim * model.experts.count if model.experts else 0
    layer = router + sum(rows * columns * times for rows, columns, times in _layer(model, mlps).values())
    return model.layers * layer + model.vocab_size * model.embed_dim


def adapter_parameters(model: ModelSpec, lora: LoraSpec | None) -> int:
    """Return the number of weights of the adapters that each token is multiplied with. 0 without adapters."""
    if lora is None:
        return 0
    return _adapters(model, lora, model.experts.per_token if model.experts else 1)


def trained_parameters(model: ModelSpec, lora: LoraSpec | None) -> int:
    """Return the number of weights that are trained: all, or those of all adapters."""
    if lora is None:
        return total_parameters(model)
    return _adapters(model, lora, model.experts.count if model.experts else 1)


def state_bytes(model: ModelSpec, lora: LoraSpec | None, optimizer: OptimizerSpec) -> int:
    """Return the fewest bytes of the trained weights and their moments, all in float32.

    AdamW has two moments of each weight. Muon has one of the matrices of layers, and here of all.
    """
    return 4 * (3 if optimizer.kind == "adamw" else 2) * trained_parameters(model, lora)


def _adapters(model: ModelSpec, lora: LoraSpec, mlps: int) -> int:
    """Return the number of weights of the adapters, with those of `mlps` MLPs per layer."""
    layer = _layer(model, mlps)
    sizes = [layer[name] for name in lora.targets]
    return model.layers * lora.rank * sum((rows + columns) * times for rows, columns, times in sizes)


def _layer(model: ModelSpec, mlps: int) -> Mapping[str, tuple[int, int, int]]:
    """Return rows, columns and number of each matrix of a layer, without the router."""
    embed, mlp, heads = model.embed_dim, model.mlp_dim, model.query_heads * model.head_dim
    return {
        "query_key_value": (embed, heads + 2 * model.kv_heads * model.head_dim, 1),
        "out": (heads, embed, 1),
        "gate": (embed, mlp, mlps),
        "up": (embed, mlp, mlps),
        "down": (mlp, embed, mlps),
    }
