"""The supported families of models of Hugging Face: their parts, and how their files name and leave out things."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

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
        """Fields of the model that all members of the family set."""
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
