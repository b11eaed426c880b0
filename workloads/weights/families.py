"""The supported families of models of Hugging Face: their parts, what their files leave out, and their tensors.

One table is used in both directions: each tensor, with its name and shape, is a view of one of the trainer's arrays.
This module reads and writes no files.

Letters as in `workloads.training.model`: D embed, N query heads, K kv heads, H head, F mlp, V vocabulary; G query
heads for each kv head.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workloads.spec import ModelSpec
from workloads.training.failures import InvalidSpec

type Config = dict[str, Any]
"""Content of `config.json`."""

LOCAL_ROPE = "windows.rope_base"
"""Field of the model that counts as an option of its own."""


@dataclass(frozen=True)
class Experts:
    """Names of the parts of a mixture of experts."""

    count: str
    """Entry of `config.json`."""
    width: str
    """Entry of `config.json` with the width of each expert."""
    router: str
    """Tensor of a layer."""
    each: str
    """Prefix of an expert's tensors in a layer, with its number as `{}`."""
    matrices: Mapping[str, str]
    """Names of an expert's tensors by those of the trainer's arrays."""


@dataclass(frozen=True)
class Family:
    """Models of one `model_type` of `config.json`."""

    architecture: str
    parts: Mapping[str, object]
    """Values of fields of the model that are the same in all members."""
    options: Set[str]
    """Fields that some members set."""
    constants: Mapping[str, object]
    """Other entries of their `config.json`."""
    absent: Mapping[str, object]
    """Values of entries that a `config.json` may leave out, by the configuration classes of transformers 5."""
    experts: Experts | None = None

    @property
    def fixed(self) -> Set[str]:
        return self.parts.keys() | ({"experts"} if self.experts else set[str]())


_STRETCHED = frozenset({"rope_scaling", "rope_linear_factor"})
_GEMMA = {"output_norms": True, "norm_scales_from_one": True, "scaled_embedding": True, "activation": "gelu"}
_GEMMA_OPTIONS = frozenset({"score_dim", "attention_soft_cap", "logit_soft_cap", "windows"})
_GEMMA_CONSTANTS = {"attention_bias": False, "hidden_activation": "gelu_pytorch_tanh"}
_PLAIN = {"rms_norm_eps": 1e-6, "rope_theta": 1e4, "rope_scaling": None, "tie_word_embeddings": False}
_GEMMA_SIZES = {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096}
_GEMMA_ABSENT = _PLAIN | _GEMMA_SIZES | {"tie_word_embeddings": True}
_SILU = {"hidden_act": "silu"}
_QWEN = _SILU | {"attention_bias": False, "use_sliding_window": False}
_QWEN_ABSENT = _PLAIN | {"use_sliding_window": False}
_MIXTRAL_EXPERTS = Experts(
    count="num_local_experts",
    width="intermediate_size",
    router="block_sparse_moe.gate",
    each="block_sparse_moe.experts.{}",
    matrices={"gate": "w1", "down": "w2", "up": "w3"},
)
_QWEN_EXPERTS = Experts(
    count="num_experts",
    width="moe_intermediate_size",
    router="mlp.gate",
    each="mlp.experts.{}",
    matrices={"gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
)
FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM", {}, _STRETCHED, _SILU | {"attention_bias": False, "mlp_bias": False}, _PLAIN),
    "mistral": Family(
        "MistralForCausalLM", {}, _STRETCHED, _SILU | {"sliding_window": None}, _PLAIN | {"sliding_window": 4096}
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        {},
        _STRETCHED,
        _SILU | {"sliding_window": None},
        _PLAIN | {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "router_aux_loss_coef": 0.001},
        _MIXTRAL_EXPERTS,
    ),
    "qwen3": Family("Qwen3ForCausalLM", {"query_key_norm": True}, _STRETCHED, _QWEN, _QWEN_ABSENT | {"head_dim": 128}),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        {"query_key_norm": True},
        _STRETCHED,
        _QWEN | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
        _QWEN_ABSENT | {"norm_topk_prob": False, "router_aux_loss_coef": 0.001},
        _QWEN_EXPERTS,
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        _GEMMA,
        _GEMMA_OPTIONS,
        _GEMMA_CONSTANTS,
        _GEMMA_ABSENT | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window_pattern": 2},
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        _GEMMA | {"query_key_norm": True},
        _GEMMA_OPTIONS | _STRETCHED | {LOCAL_ROPE},
        _GEMMA_CONSTANTS,
        _GEMMA_ABSENT | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6},
    ),
}
"""Families by `model_type`. A model is exported as the first one that it fits, a Mistral without a window as Llama."""

MODEL_TYPES = tuple(FAMILIES)
"""Supported values of `model_type` in `config.json`."""


def model_types(model: ModelSpec) -> list[str]:
    """Return each `model_type` with the layout of `model`, at least one.

    Raises:
        InvalidSpec: there is no such layout.
    """
    special = {name for family in FAMILIES.values() for name in family.fixed | family.options} - {LOCAL_ROPE}
    used = {name for name in special if getattr(model, name) != ModelSpec.model_fields[name].default}
    if model.windows and model.windows.rope_base:
        used.add(LOCAL_ROPE)
    fitting = [name for name, family in FAMILIES.items() if family.fixed <= used <= family.fixed | family.options]
    if not fitting:
        raise InvalidSpec(
            f"a model with {', '.join(sorted(used))} fits none of the supported layouts of Hugging Face:"
            f" {', '.join(MODEL_TYPES)}"
        )
    return fitting


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
        view = self._view(array)
        view[...] = values.reshape(view.shape)

    def take(self, array: np.ndarray) -> np.ndarray:
        return self._view(array).reshape(self.shape)


def copies(model: ModelSpec) -> dict[str, str]:
    """Return tensors that files may have twice, as those of Qwen3 0.6B do, with the name of the other one."""
    return {"lm_head.weight": "model.embed_tokens.weight"} if model.tied_embedding else {}


def tensors(model: ModelSpec) -> Iterator[Tensor]:
    """Yield all tensors of `model`, layer by layer.

    Raises:
        InvalidSpec: Hugging Face has no layout for it.
    """
    experts = FAMILIES[model_types(model)[0]].experts
    table, scale = (model.vocab_size, model.embed_dim), (model.embed_dim,)
    yield Tensor("model.embed_tokens.weight", table, ("embedding",), np.asarray)
    for layer in range(model.layers):
        for part in (*_norms(model, layer), *_attention(model, layer), *_mlp(model, layer, experts)):
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


def _mlp(model: ModelSpec, layer: int, experts: Experts | None) -> Iterator[Tensor]:
    embed, mlp = model.embed_dim, model.mlp_dim
    shapes = {"gate": (mlp, embed), "up": (mlp, embed), "down": (embed, mlp)}
    if not model.experts or not experts:
        for name, shape in shapes.items():
            yield Tensor(f"mlp.{name}_proj.weight", shape, (name,), lambda array: array[layer].T)
        return
    router = (model.experts.count, embed)
    yield Tensor(f"{experts.router}.weight", router, ("router",), lambda array: array[layer].T)
    for expert in range(model.experts.count):
        for name, shape in shapes.items():
            named = f"{experts.each.format(expert)}.{experts.matrices[name]}.weight"
            yield Tensor(named, shape, (name,), lambda array, expert=expert: array[layer, expert].T)
