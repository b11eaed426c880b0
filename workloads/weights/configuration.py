"""Reads and writes the configuration of Hugging Face, `config.json`. `families` has what differs between models."""

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from pydantic import ValidationError

from workloads.spec import ModelSpec, Reach, Spec
from workloads.spec.base import PositiveInt
from workloads.training.failures import InvalidSpec
from workloads.weights.families import FAMILIES, LOCAL_ROPE, MODEL_TYPES, Config, Family, model_types

CONFIG = "config.json"

_ENTRIES = {
    "vocab_size": "vocab_size",
    "embed_dim": "hidden_size",
    "layers": "num_hidden_layers",
    "query_heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "rope_base": "rope_theta",
    "norm_epsilon": "rms_norm_eps",
    "tied_embedding": "tie_word_embeddings",
}
"""Names of entries by field of the model. For `mlp_dim`, see `_entries`."""

_LLAMA3 = {
    "factor": "factor",
    "low_frequency_factor": "low_freq_factor",
    "high_frequency_factor": "high_freq_factor",
    "original_length": "original_max_position_embeddings",
}
"""Names in `rope_scaling` by field of the model's."""

_REACHES = {"local": "sliding_attention", "global": "full_attention"}

_DENSE_LAYERS = "dense layers between layers with experts"
_UNSUPPORTED: Mapping[str, tuple[str, object]] = {
    "attention_bias": ("biases of attention", False),
    "mlp_bias": ("biases of the MLP", False),
    "kv_lora_rank": ("latent attention", None),
    "vision_config": ("a vision tower", None),
    "sliding_window": ("a sliding window", None),
    "mlp_only_layers": (_DENSE_LAYERS, []),
    "decoder_sparse_step": (_DENSE_LAYERS, 1),
    "first_k_dense_replace": (_DENSE_LAYERS, 0),
    "n_shared_experts": ("shared experts", 0),
    "shared_expert_intermediate_size": ("shared experts", 0),
    "norm_topk_prob": ("weights of a token's experts that do not add up to 1", True),
    "partial_rotary_factor": ("RoPE on a part of each head", 1),
    "use_bidirectional_attention": ("attention to later tokens", False),
    "quantization_config": ("quantized weights", None),
}
"""Parts of models that cannot be imported, with the value of models without them, by their entries."""


class Described(Spec):
    """The model of a `config.json`."""

    model: ModelSpec
    sequence_length: PositiveInt
    """Tokens per sequence that the weights are made for."""


def config(model: ModelSpec, sequence_length: int, dtype: str) -> Config:
    """Return the `config.json` of `model`, without the tokenizer's special tokens."""
    experts = model.experts
    # The loss of Hugging Face sums over a token's experts, where ours takes the mean.
    balance = {"router_aux_loss_coef": experts.balance_weight / experts.per_token} if experts else {}
    return {
        **_architecture(model, model_types(model)[0]),
        **balance,
        "max_position_embeddings": sequence_length,
        "torch_dtype": dtype,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def config_faults(found: Config, model: ModelSpec) -> list[str]:
    """Return a message for each difference between a `config.json` and `model`."""
    found, names = _completed(found), model_types(model)
    name = found.get("model_type")
    return [
        f"config.json {key}: expected {expected}, got {found[key]}"
        for key, expected in _architecture(model, name if name in names else names[0]).items()
        if key in found and (found[key] or None) != (expected or None)
    ]


def unsupported(found: Config) -> list[str]:
    """Return the parts of a model that cannot be imported by its `config.json`, each with its entry."""
    found = _completed(found)
    name = found.get("model_type")
    family = FAMILIES.get(str(name))
    windows = family is not None and "windows" in family.options
    wrong: list[str] = []
    if name is not None and family is None:
        wrong.append(f"another architecture than {', '.join(MODEL_TYPES)} (model_type: {name})")
    if str(name).startswith("qwen2"):
        wrong.append("biases of queries, keys and values")
    for key, (part, without) in _UNSUPPORTED.items():
        value = found.get(key)
        if value not in (None, without) and not (windows and key == "sliding_window"):
            wrong.append(f"{part} ({key})" if isinstance(value, dict) else f"{part} ({key}: {value})")
    for key in ("hidden_act", "hidden_activation"):
        if family and key in family.constants and found.get(key) not in (None, family.constants[key]):
            wrong.append(f"another activation than {family.constants[key]} ({key}: {found[key]})")
    reaches = {"full_attention", *(("sliding_attention",) if windows else ())}
    if isinstance(types := found.get("layer_types"), list) and (odd := {str(one) for one in types} - reaches):
        wrong.append(f"layers of other types (layer_types: {', '.join(sorted(odd))})")
    if isinstance(scaling := found.get("rope_scaling"), dict) and scaling.get("rope_type") not in ("linear", "llama3"):
        wrong.append(f"this kind of RoPE scaling (rope_type: {scaling.get('rope_type')})")
    return wrong


def described(found: Config) -> Described:
    """Return the model of a `config.json` without unsupported parts.

    Raises:
        InvalidSpec: entries are missing or wrong, or the trainer has no such model. The message has all errors.
    """
    found = _completed(found)
    family = FAMILIES.get(str(found.get("model_type")), FAMILIES["llama"])
    entries = _entries(family)
    counts = [family.experts.count, "num_experts_per_tok"] if family.experts else []
    needed = ["model_type", *entries.values(), *counts, "max_position_embeddings"]
    if missing := [key for key in needed if found.get(key) is None]:
        raise InvalidSpec(f"{CONFIG} must have {', '.join(missing)}, but does not; download it again")
    try:
        values = {field: found[key] for field, key in entries.items()} | dict(family.parts) | _rope_fields(found)
        if "windows" in family.options:
            values |= _gemma_fields(found)
        if family.experts:
            count, per_token = (found[key] for key in counts)
            balance = found["router_aux_loss_coef"] * per_token
            values["experts"] = {"count": count, "per_token": per_token, "balance_weight": balance}
        model = Described.model_validate({"model": values, "sequence_length": found["max_position_embeddings"]})
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise InvalidSpec(f"{CONFIG} does not describe a model: {'; '.join(wrong)}; download it again") from None
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidSpec(f"{CONFIG} has wrong entries: {error}; download it again") from None
    model_types(model.model)
    return model


def _entries(family: Family) -> dict[str, str]:
    return {**_ENTRIES, "mlp_dim": family.experts.width if family.experts else "intermediate_size"}


def _architecture(model: ModelSpec, name: str) -> Config:
    """Return the entries that determine the model, including what the weights do not show, such as RoPE."""
    family, experts = FAMILIES[name], model.experts
    counts = {family.experts.count: experts.count} if family.experts and experts else {}
    return {
        "model_type": name,
        "architectures": [family.architecture],
        **family.constants,
        **({**counts, "num_experts_per_tok": experts.per_token} if experts else {}),
        **(_gemma_entries(model, family) if "windows" in family.options else {}),
        **{key: getattr(model, field) for field, key in _entries(family).items()},
        "rope_scaling": _rope_entry(model),
    }


def _gemma_entries(model: ModelSpec, family: Family) -> Config:
    windows = model.windows
    local = {"rope_local_base_freq": windows and windows.rope_base or model.rope_base}
    return {
        "query_pre_attn_scalar": model.score_dim or model.head_dim,
        "attn_logit_softcapping": model.attention_soft_cap,
        "final_logit_softcapping": model.logit_soft_cap,
        "layer_types": [_REACHES[reach] for reach in islice(cycle(model.pattern), model.layers)],
        **({"sliding_window": windows.size} if windows else {}),
        **(local if LOCAL_ROPE in family.options else {}),
    }


def _gemma_fields(found: Config) -> dict[str, Any]:
    """Return the fields of the model for the entries of `_gemma_entries`."""
    local, scalar, pattern = found.get("rope_local_base_freq"), found["query_pre_attn_scalar"], _pattern(found)
    base = None if local == found["rope_theta"] else local
    windows = {"size": found["sliding_window"], "pattern": pattern, "rope_base": base}
    return {
        "score_dim": None if scalar == found["head_dim"] else scalar,
        "attention_soft_cap": found.get("attn_logit_softcapping"),
        "logit_soft_cap": found.get("final_logit_softcapping"),
        "windows": windows if "local" in pattern else None,
    }


def _pattern(found: Config) -> list[Reach]:
    """Return the shortest pattern of the layers' reaches."""
    if (types := found.get("layer_types")) is None:
        every = found["sliding_window_pattern"]
        types = ["full_attention" if layer % every == 0 else "" for layer in range(1, found["num_hidden_layers"] + 1)]
    reaches: list[Reach] = ["global" if one == _REACHES["global"] else "local" for one in types]
    sizes = range(1, len(reaches))
    size = next((size for size in sizes if [*islice(cycle(reaches[:size]), len(reaches))] == reaches), len(reaches))
    return reaches[:size]


def _rope_entry(model: ModelSpec) -> Config | None:
    if model.rope_linear_factor:
        return {"rope_type": "linear", "factor": model.rope_linear_factor}
    scaling = model.rope_scaling
    return scaling and {"rope_type": "llama3"} | {key: getattr(scaling, field) for field, key in _LLAMA3.items()}


def _rope_fields(found: Config) -> dict[str, Any]:
    """Return the fields of the model for the entry of `_rope_entry`."""
    if not (scaling := found["rope_scaling"]):
        return {}
    if scaling["rope_type"] == "linear":
        return {"rope_linear_factor": scaling.get("factor")}
    return {"rope_scaling": {field: scaling.get(key) for field, key in _LLAMA3.items()}}


def _completed(found: Config) -> Config:
    """Return a `config.json` with its entries in one form, and with those that its family may leave out."""
    family = FAMILIES.get(str(found.get("model_type")))
    found = {**(family.absent if family else {}), **_with_rope_apart(found)}
    if not found.get("use_sliding_window", True):
        found["sliding_window"] = None
    if family and family.experts and family.experts.count not in found:
        # Transformers 5 writes the name of Mixtral for all.
        found[family.experts.count] = found.get("num_local_experts")
    width, heads = found.get("hidden_size"), found.get("num_attention_heads")
    if isinstance(width, int) and isinstance(heads, int) and heads > 0:
        shape = {"head_dim": width // heads, "num_key_value_heads": heads}
        found |= {key: value for key, value in shape.items() if found.get(key) is None}
    return found


def _with_rope_apart(found: Mapping[str, Any]) -> Config:
    """Split `rope_parameters`, in which Transformers 5 writes base and scaling, and name the kind of scaling as now."""
    rope, local = found.get("rope_parameters"), None
    if isinstance(rope, dict) and "full_attention" in rope:
        rope, local = rope["full_attention"], rope.get("sliding_attention")
    found = dict(found)
    for key, part in {"rope_theta": rope, "rope_local_base_freq": local}.items():
        if isinstance(part, dict) and "rope_theta" in part:
            found[key] = part["rope_theta"]
    if isinstance(scaling := rope or found.get("rope_scaling"), dict):
        kind = scaling.get("rope_type", scaling.get("type"))
        others = {key: value for key, value in scaling.items() if key not in ("rope_theta", "rope_type", "type")}
        found["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **others}
    return found
