"""Weights of small models in the layout of Hugging Face, by the names in published files.

It shares no code with the import.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from workloads.spec import ExpertsSpec, ModelSpec, RopeScaling, WindowSpec

type Tensors = dict[str, np.ndarray]

SCALING = RopeScaling(factor=8, low_frequency_factor=1, high_frequency_factor=4, original_length=64)

UNTIED = ModelSpec(
    vocab_size=32,
    embed_dim=16,
    mlp_dim=24,
    layers=2,
    query_heads=6,
    kv_heads=2,
    head_dim=8,
    rope_scaling=SCALING,
    norm_epsilon=1e-5,
    tied_embedding=False,
)
TIED = UNTIED.model_copy(update={"tied_embedding": True})
EXPERTS = UNTIED.model_copy(
    update={"rope_scaling": None, "experts": ExpertsSpec(count=4, per_token=2, balance_weight=0.04)}
)
QWEN3 = TIED.model_copy(update={"rope_scaling": None, "rope_base": 1e6, "query_key_norm": True})
_GEMMA = {
    "rope_scaling": None,
    "activation": "gelu",
    "output_norms": True,
    "norm_scales_from_one": True,
    "scaled_embedding": True,
    "score_dim": 5,
}
GEMMA2 = TIED.model_copy(
    update=_GEMMA
    | {
        "layers": 3,
        "attention_soft_cap": 2.0,
        "logit_soft_cap": 3.0,
        "windows": WindowSpec(size=8, pattern=("local", "global")),
    }
)
GEMMA3 = TIED.model_copy(
    update=_GEMMA
    | {
        "layers": 7,
        "query_key_norm": True,
        "rope_base": 1e6,
        "rope_linear_factor": 8.0,
        "windows": WindowSpec(size=8, pattern=("local", "local", "local", "local", "local", "global"), rope_base=1e4),
    }
)


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
        shapes[f"{layer}.block_sparse_moe.gate"] = (model.experts.count, embed)
        for expert in range(model.experts.count):
            one = f"{layer}.block_sparse_moe.experts.{expert}"
            shapes |= {f"{one}.w1": (mlp, embed), f"{one}.w2": (embed, mlp), f"{one}.w3": (mlp, embed)}
    random = np.random.default_rng(0)
    return {f"{name}.weight": random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def write_files(folder: Path, tensors: Tensors, files: int = 1) -> Path:
    """Write the tensors to `files` files, with an index if there are several."""
    folder.mkdir()
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    placed = {name: f"model-{number % files}.safetensors" for number, name in enumerate(tensors)}
    for file in set(placed.values()):
        save_file({name: tensors[name] for name in tensors if placed[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    return folder
