"""Weights of small models in the layout of Hugging Face, by the names in published files.

It shares no code with the import.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from workloads.spec import ExpertsSpec, ModelSpec, RopeScaling, WindowSpec

type Tensors = dict[str, np.ndarray]

SCALING = RopeScaling(factor=8, low_frequency_factor=1, high_frequency_factor=4, original_length=64)

_HEADS = {"query_heads": 6, "kv_heads": 2, "head_dim": 8}
_LAYER = {"vocab_size": 32, "embed_dim": 16, "mlp_dim": 24, "layers": 2, "norm_epsilon": 1e-5}
UNTIED = ModelSpec.model_validate({**_LAYER, **_HEADS, "rope_scaling": SCALING, "tied_embedding": False})
TIED = UNTIED.model_copy(update={"tied_embedding": True})
MISTRAL = UNTIED.model_copy(update={"rope_scaling": None, "rope_base": 1e6})
EXPERTS = UNTIED.model_copy(
    update={"rope_scaling": None, "experts": ExpertsSpec(count=4, per_token=2, balance_weight=0.04)}
)
QWEN3 = TIED.model_copy(update={"rope_scaling": None, "rope_base": 1e6, "query_key_norm": True})
QWEN3_EXPERTS = MISTRAL.model_copy(
    update={"query_key_norm": True, "experts": ExpertsSpec(count=6, per_token=3, balance_weight=0.003)}
)
_GEMMA = dict.fromkeys(("output_norms", "norm_scales_from_one", "scaled_embedding"), True) | {
    "rope_scaling": None,
    "activation": "gelu",
    "score_dim": 5,
}
_TWO, _SIX = ("local", "global"), (*["local"] * 5, "global")
GEMMA2 = TIED.model_copy(
    update={**_GEMMA, "layers": 3, "windows": WindowSpec.model_validate({"size": 8, "pattern": _TWO})}
    | {"attention_soft_cap": 2.0, "logit_soft_cap": 3.0}
)
GEMMA3 = TIED.model_copy(
    update={**_GEMMA, "layers": 7, "query_key_norm": True, "rope_base": 1e6, "rope_linear_factor": 8.0}
    | {"windows": WindowSpec.model_validate({"size": 8, "pattern": _SIX, "rope_base": 1e4})}
)
FAMILIES = {
    "untied": UNTIED,
    "tied": TIED,
    "mistral": MISTRAL,
    "experts": EXPERTS,
    "qwen3": QWEN3,
    "qwen3-experts": QWEN3_EXPERTS,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
}

_SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
_LLAMA = _SIZES | {"model_type": "llama", "rope_scaling": _LLAMA3 | {"rope_type": "llama3"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "untied": _LLAMA,
    "tied": _LLAMA | {"tie_word_embeddings": True},
    "mistral": _SIZES | {"model_type": "mistral", "sliding_window": None, "rope_theta": 1000000.0},
    "experts": _SIZES
    | {"model_type": "mixtral", "rope_theta": 10000.0, "num_local_experts": 4, "num_experts_per_tok": 2}
    | {"router_aux_loss_coef": 0.02},
    "qwen3": _SIZES | {"model_type": "qwen3", "rope_theta": 1e6, "tie_word_embeddings": True, "sliding_window": 64},
    "qwen3-experts": _SIZES
    | {"rope_theta": 1000000, "attention_bias": False, "sliding_window": None, "use_sliding_window": False}
    | {"model_type": "qwen3_moe", "intermediate_size": 96, "moe_intermediate_size": 24, "mlp_only_layers": []}
    | {"num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1},
    "gemma2": _SIZES
    | {"model_type": "gemma2", "num_hidden_layers": 3, "query_pre_attn_scalar": 5, "sliding_window": 8}
    | {"hidden_act": "gelu_pytorch_tanh", "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3": _SIZES
    | {"model_type": "gemma3_text", "num_hidden_layers": 7, "query_pre_attn_scalar": 5, "sliding_window": 8}
    | {"rope_scaling": {"factor": 8.0, "type": "linear"}, "hidden_activation": "gelu_pytorch_tanh"},
}
"""The `config.json` of each family, as published ones are: some entries are left to the defaults of the family."""


def random_tensors(model: ModelSpec) -> Tensors:
    """Return all tensors of `model`, with values large enough that every part has an effect."""
    embed, mlp, head = model.embed_dim, model.mlp_dim, model.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (model.vocab_size, embed), "model.norm": (embed,)}
    if not model.tied_embedding:
        shapes["lm_head"] = (model.vocab_size, embed)
    for number in range(model.layers):
        layer = f"model.layers.{number}"
        norms = ["input", "post_attention", *(["pre_feedforward", "post_feedforward"] if model.output_norms else [])]
        shapes |= {f"{layer}.{norm}_layernorm": (embed,) for norm in norms}
        if model.query_key_norm:
            shapes |= {f"{layer}.self_attn.{kind}_norm": (head,) for kind in "qk"}
        shapes[f"{layer}.self_attn.q_proj"] = (model.query_heads * head, embed)
        shapes[f"{layer}.self_attn.k_proj"] = shapes[f"{layer}.self_attn.v_proj"] = (model.kv_heads * head, embed)
        shapes[f"{layer}.self_attn.o_proj"] = (embed, model.query_heads * head)
        if model.experts is None:
            shapes |= {f"{layer}.mlp.gate_proj": (mlp, embed), f"{layer}.mlp.up_proj": (mlp, embed)}
            shapes[f"{layer}.mlp.down_proj"] = (embed, mlp)
            continue
        block = f"{layer}.mlp" if model.query_key_norm else f"{layer}.block_sparse_moe"
        gate, down, up = ("gate_proj", "down_proj", "up_proj") if model.query_key_norm else ("w1", "w2", "w3")
        shapes[f"{block}.gate"] = (model.experts.count, embed)
        for expert in range(model.experts.count):
            one = f"{block}.experts.{expert}"
            shapes |= {f"{one}.{gate}": (mlp, embed), f"{one}.{down}": (embed, mlp), f"{one}.{up}": (mlp, embed)}
    random = np.random.default_rng(0)
    return {f"{name}.weight": random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def write_files(folder: Path, tensors: Tensors, files: int = 1, config: dict[str, Any] | None = None) -> Path:
    """Write the tensors to `files` files, with an index if there are several, and the configuration."""
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    placed = {name: f"model-{number % files}.safetensors" for number, name in enumerate(tensors)}
    for file in set(placed.values()):
        save_file({name: tensors[name] for name in tensors if placed[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    return folder
