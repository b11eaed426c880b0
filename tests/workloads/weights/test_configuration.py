"""The model of a `config.json`, and the parts that are refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.weights.hugging_face_files import CONFIGS, FAMILIES
from workloads.spec import ExitCode, load_preset, preset_names
from workloads.training.failures import InvalidSpec
from workloads.weights.__main__ import main
from workloads.weights.configuration import config, described

LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3}
QUANTIZED = {"quantization_config": {"quant_method": "fp8"}}
YARN = {"rope_scaling": {"type": "yarn", "factor": 4.0}}
MOE = CONFIGS["qwen3-experts"]
UNSUPPORTED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "another kind": ({"model_type": "gpt2"}, ("than llama, mistral, mixtral, qwen3, .* \\(model_type: gpt2\\)",)),
    "Qwen 2.5": (
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 131072},
        ("model_type: qwen2", "biases of queries, keys and values"),
    ),
    "DeepSeek V3": (
        {"model_type": "deepseek_v3", **LATENT, **QUANTIZED},
        ("model_type: deepseek_v3", "latent attention", "dense layers", "shared experts", "quantized weights"),
    ),
    "images": (
        {"model_type": "gemma3", "vision_config": {}, "text_config": {}},
        ("model_type: gemma3", "vision tower"),
    ),
    "window": (CONFIGS["mistral"] | {"sliding_window": 64}, ("a sliding window \\(sliding_window: 64\\)",)),
    "window that is not named": ({"model_type": "mistral"}, ("a sliding window \\(sliding_window: 4096\\)",)),
    "window of Qwen": (
        CONFIGS["qwen3"] | {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]},
        ("a sliding window \\(sliding_window: 64\\)", "layers of other types"),
    ),
    "dense layers": (
        MOE | {"mlp_only_layers": [0], "decoder_sparse_step": 2},
        ("mlp_only_layers: \\[0\\]", "decoder_sparse_step: 2"),
    ),
    "weights that do not add up": ({"model_type": "qwen3_moe"}, ("do not add up to 1 \\(norm_topk_prob: False\\)",)),
    "YaRN, biases, activation, quantized": (
        CONFIGS["untied"] | YARN | QUANTIZED | {"attention_bias": True, "mlp_bias": True, "hidden_act": "relu"},
        ("rope_type: yarn", "attention_bias: True", "mlp_bias: True", "hidden_act: relu", "quantized weights"),
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_all_parts_that_are_not_supported_are_named_at_once_before_files(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, parts = UNSUPPORTED[case]
    (tmp_path / "config.json").write_text(json.dumps(found))
    assert main(["import", str(tmp_path), str(tmp_path / "out")]) == ExitCode.INVALID_SPEC
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"error: {tmp_path}/config.json has a model that cannot be imported: ")
    assert len(message.split(": ", 2)[2].split("; ")) == len(parts) + 1
    assert [part for part in parts if not re.search(part, message)] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", preset_names())
def test_the_configuration_of_a_preset_is_read_as_its_model(name: str) -> None:
    model = load_preset(name).model
    assert described(config(model, 4096, "float32")).model == model


def test_names_of_transformers_5_are_read() -> None:
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    types = [*["sliding_attention"] * 5, "full_attention", "sliding_attention"]
    without = {key: value for key, value in CONFIGS["gemma3"].items() if key != "rope_scaling"}
    assert described(without | {"rope_parameters": rope, "layer_types": types}).model == FAMILIES["gemma3"]
    experts = {"num_local_experts" if key == "num_experts" else key: value for key, value in MOE.items()}
    assert described(experts | {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}) == described(MOE)


def test_heads_that_are_not_described_are_as_many_as_query_heads_of_the_whole_width() -> None:
    old = {key: value for key, value in CONFIGS["untied"].items() if key not in ("head_dim", "num_key_value_heads")}
    model = described(old | {"num_attention_heads": 4}).model
    assert (model.query_heads, model.kv_heads, model.head_dim) == (4, 4, 4)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"hidden_size": None, "max_position_embeddings": None}, "must have hidden_size, max_position_embeddings, but"),
        ({"model_type": None}, "must have model_type, "),
        ({"vocab_size": "32", "num_hidden_layers": 0}, "vocab_size: .*valid integer; .*layers: .* greater than 0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling.original_length: "),
        ({"rope_scaling": "llama3"}, "has wrong entries"),
        (CONFIGS["gemma2"] | {"sliding_window_pattern": 0}, "has wrong entries"),
        (CONFIGS["gemma2"] | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "fits none of the supported"),
    ],
)
def test_entries_that_describe_no_model_are_named(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidSpec, match=fault):
        described(CONFIGS["untied"] | change)
