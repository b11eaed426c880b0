"""The tensors of the supported families of Hugging Face: names, shapes, and where their values are in the trainer.

One table is used in both directions: each tensor is a view of one of the trainer's arrays. This module reads and writes
no files.

Letters as in `workloads.training.model`: D embed, N query heads, K kv heads, H head, F mlp, V vocabulary; G query
heads for each kv head.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from workloads.spec import ModelSpec
from workloads.weights.families import FAMILIES, Experts, model_types

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
