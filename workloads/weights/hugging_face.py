"""The supported layouts of Hugging Face: names and shapes of tensors, and the configuration file.

One table is used in both directions: each tensor is a view of one of the trainer's arrays. This module reads and writes
no files.

Letters as in `workloads.training.model`: D embed, N query heads, K kv heads, H head, F mlp, V vocabulary; G query
heads for each kv head.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from workloads.spec import ModelSpec
from workloads.training.failures import InvalidSpec

type Config = dict[str, Any]
"""Content of `config.json`."""


@dataclass(frozen=True)
class _Family:
    """Models of one `model_type` of `config.json`."""

    architecture: str
    parts: frozenset[str]
    """Fields of the model that all members of the family set."""
    options: frozenset[str]
    """Fields that some members set."""
    constants: Mapping[str, bool | None]
    """Other entries of their `config.json`."""


_STRETCHED = frozenset({"rope_scaling", "rope_linear_factor"})
_GEMMA = frozenset({"output_norms", "norm_scales_from_one", "scaled_embedding", "activation"})
_GEMMA_OPTIONS = frozenset({"score_dim", "attention_soft_cap", "logit_soft_cap", "windows"})
_LOCAL_ROPE = "windows.rope_base"
_FAMILIES = {
    "llama": _Family("LlamaForCausalLM", frozenset(), _STRETCHED, {"attention_bias": False, "mlp_bias": False}),
    "mixtral": _Family("MixtralForCausalLM", frozenset({"experts"}), _STRETCHED, {"sliding_window": None}),
    "qwen3": _Family(
        "Qwen3ForCausalLM",
        frozenset({"query_key_norm"}),
        _STRETCHED,
        {"attention_bias": False, "use_sliding_window": False},
    ),
    "gemma2": _Family("Gemma2ForCausalLM", _GEMMA, _GEMMA_OPTIONS, {"attention_bias": False}),
    "gemma3_text": _Family(
        "Gemma3ForCausalLM",
        _GEMMA | {"query_key_norm"},
        _GEMMA_OPTIONS | _STRETCHED | {_LOCAL_ROPE},
        {"attention_bias": False},
    ),
}

MODEL_TYPES = tuple(_FAMILIES)
"""Supported values of `model_type` in `config.json`."""

_ACTIVATIONS = {"silu": "silu", "gelu": "gelu_pytorch_tanh"}
_REACHES = {"local": "sliding_attention", "global": "full_attention"}

type View = Callable[[np.ndarray], np.ndarray]
"""Function from one of the trainer's arrays to its view with a tensor."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of the files."""

    name: str
    shape: tuple[int, ...]
    array: tuple[str, ...]
    """Keys of the trainer's array."""
    _view: View

    def put(self, array: np.ndarray, values: np.ndarray) -> None:
        """Write the tensor's values into the array."""
        view = self._view(array)
        view[...] = values.reshape(view.shape)

    def take(self, array: np.ndarray) -> np.ndarray:
        """Return the tensor's values from the array."""
        return self._view(array).reshape(self.shape)


def model_type(model: ModelSpec) -> str:
    """Return the `model_type` with the layout of `model`.

    Raises:
        InvalidSpec: there is no such layout.
    """
    special = {name for family in _FAMILIES.values() for name in family.parts | family.options} - {_LOCAL_ROPE}
    used = {name for name in special if getattr(model, name) != ModelSpec.model_fields[name].default}
    if model.windows and model.windows.rope_base:
        used.add(_LOCAL_ROPE)
    for name, family in _FAMILIES.items():
        if family.parts <= used <= family.parts | family.options:
            return name
    raise InvalidSpec(
        f"a model with {', '.join(sorted(used))} fits none of the supported layouts of Hugging Face:"
        f" {', '.join(MODEL_TYPES)}"
    )


def copies(model: ModelSpec) -> dict[str, str]:
    """Return tensors that files may have twice, as those of Qwen3 0.6B do, with the name of the other one."""
    return {"lm_head.weight": "model.embed_tokens.weight"} if model.tied_embedding else {}


def tensors(model: ModelSpec) -> Iterator[Tensor]:
    """Yield all tensors of `model`, layer by layer.

    Raises:
        InvalidSpec: Hugging Face has no layout for it.
    """
    model_type(model)
    table, scale = (model.vocab_size, model.embed_dim), (model.embed_dim,)
    yield Tensor("model.embed_tokens.weight", table, ("embedding",), np.asarray)
    for layer in range(model.layers):
        for part in (*_norms(model, layer), *_attention(model, layer), *_mlp(model, layer)):
            yield replace(part, name=f"model.layers.{layer}.{part.name}", array=("blocks", *part.array))
    yield Tensor("model.norm.weight", scale, ("final_scale",), np.asarray)
    if not model.tied_embedding:
        yield Tensor("lm_head.weight", table, ("unembedding",), np.asarray)


def _norms(model: ModelSpec, layer: int) -> Iterator[Tensor]:
    names = {"input_layernorm": "attention_scale", "post_attention_layernorm": "mlp_scale"}
    if model.output_norms:
        names |= {
            "post_attention_layernorm": "attention_output_scale",
            "pre_feedforward_layernorm": "mlp_scale",
            "post_feedforward_layernorm": "mlp_output_scale",
        }
    shapes = dict.fromkeys(names, (model.embed_dim,))
    if model.query_key_norm:
        heads = {"self_attn.q_norm": "query_scale", "self_attn.k_norm": "key_scale"}
        names, shapes = names | heads, shapes | dict.fromkeys(heads, (model.head_dim,))
    for name, scale in names.items():
        yield Tensor(f"{name}.weight", shapes[name], (scale,), lambda array: array[layer])


def _attention(model: ModelSpec, layer: int) -> Iterator[Tensor]:
    embed, head, grouped = model.embed_dim, model.head_dim, model.queries_per_kv_head
    kinds = {"q": slice(0, grouped), "k": slice(grouped, grouped + 1), "v": slice(grouped + 1, grouped + 2)}

    def heads(kind: slice) -> View:
        # The trainer has columns D,K(G+2)H. The files have rows of whole heads, (KG)H,D or KH,D.
        return lambda array: array[layer].reshape(embed, model.kv_heads, -1, head)[:, :, kind].transpose(1, 2, 3, 0)

    for kind, columns in kinds.items():
        rows = model.kv_heads * (columns.stop - columns.start) * head
        yield Tensor(f"self_attn.{kind}_proj.weight", (rows, embed), ("query_key_value",), heads(columns))
    mixed = model.query_heads * head
    yield Tensor("self_attn.o_proj.weight", (embed, mixed), ("out",), lambda array: array[layer].T)


def _mlp(model: ModelSpec, layer: int) -> Iterator[Tensor]:
    embed, mlp = model.embed_dim, model.mlp_dim
    shapes = {"gate": (mlp, embed), "up": (mlp, embed), "down": (embed, mlp)}
    if not model.experts:
        for name, shape in shapes.items():
            yield Tensor(f"mlp.{name}_proj.weight", shape, (name,), lambda array: array[layer].T)
        return
    router = (model.experts.count, embed)
    yield Tensor("block_sparse_moe.gate.weight", router, ("router",), lambda array: array[layer].T)
    numbers = {"gate": 1, "down": 2, "up": 3}
    for expert in range(model.experts.count):
        for name, shape in shapes.items():
            named = f"block_sparse_moe.experts.{expert}.w{numbers[name]}.weight"
            yield Tensor(named, shape, (name,), lambda array, expert=expert: array[layer, expert].T)


def config(model: ModelSpec, sequence_length: int, dtype: str) -> Config:
    """Return the `config.json` of `model`, without the tokenizer's special tokens."""
    experts = model.experts
    # The loss of Hugging Face sums over a token's experts, where ours takes the mean.
    balance = {"router_aux_loss_coef": experts.balance_weight / experts.per_token} if experts else {}
    return {
        **_architecture(model),
        **balance,
        "max_position_embeddings": sequence_length,
        "torch_dtype": dtype,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def config_faults(found: Config, model: ModelSpec) -> list[str]:
    """Return a message for each difference between a `config.json` and `model`."""
    found = _with_rope_apart(found)
    return [
        f"config.json {name}: expected {expected}, got {found[name]}"
        for name, expected in _architecture(model).items()
        if name in found and found[name] != expected
    ]


def _architecture(model: ModelSpec) -> Config:
    """Return the entries that determine the model, including what the weights do not show, such as RoPE."""
    name, experts = model_type(model), model.experts
    family = _FAMILIES[name]
    return {
        "model_type": name,
        "architectures": [family.architecture],
        **family.constants,
        **({"num_local_experts": experts.count, "num_experts_per_tok": experts.per_token} if experts else {}),
        **(_gemma_config(model, family) if family.parts >= _GEMMA else {"hidden_act": _ACTIVATIONS[model.activation]}),
        "vocab_size": model.vocab_size,
        "hidden_size": model.embed_dim,
        "intermediate_size": model.mlp_dim,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.query_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_base,
        "rope_scaling": _rope_scaling(model),
        "tie_word_embeddings": model.tied_embedding,
    }


def _gemma_config(model: ModelSpec, family: _Family) -> Config:
    windows = model.windows
    local = {"rope_local_base_freq": windows and windows.rope_base or model.rope_base}
    return {
        "hidden_activation": _ACTIVATIONS[model.activation],
        "query_pre_attn_scalar": model.score_dim or model.head_dim,
        "attn_logit_softcapping": model.attention_soft_cap,
        "final_logit_softcapping": model.logit_soft_cap,
        "layer_types": [_REACHES[reach] for reach in islice(cycle(model.pattern), model.layers)],
        **({"sliding_window": windows.size} if windows else {}),
        **(local if _LOCAL_ROPE in family.options else {}),
    }


def _rope_scaling(model: ModelSpec) -> Config | None:
    if model.rope_linear_factor:
        return {"rope_type": "linear", "factor": model.rope_linear_factor}
    scaling = model.rope_scaling
    return scaling and {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_frequency_factor,
        "high_freq_factor": scaling.high_frequency_factor,
        "original_max_position_embeddings": scaling.original_length,
    }


def _with_rope_apart(found: Mapping[str, Any]) -> Config:
    """Split `rope_parameters`, in which Transformers 5 writes base and scaling."""
    if not isinstance(rope := found.get("rope_parameters"), dict):
        return dict(found)
    if "full_attention" in rope:
        local = rope["sliding_attention"]["rope_theta"]
        return _with_rope_apart({**found, "rope_parameters": rope["full_attention"], "rope_local_base_freq": local})
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    plain = scaling.get("rope_type") == "default"
    return {**found, "rope_theta": rope.get("rope_theta"), "rope_scaling": None if plain else scaling}
