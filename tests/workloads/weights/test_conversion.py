import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from etils import epath
from safetensors.numpy import load_file, save

from tests.workloads.plain_model import plain_logits
from tests.workloads.weights.hugging_face_files import (
    CONFIGS,
    FAMILIES,
    QWEN3,
    TIED,
    UNTIED,
    Tensors,
    random_tensors,
    write_files,
)
from workloads.spec import ExitCode, ModelSpec, load_preset
from workloads.training.failures import InvalidSpec
from workloads.training.parameter_folder import read_about, read_whole
from workloads.weights import tensor_files
from workloads.weights.__main__ import main
from workloads.weights.conversion import export_weights, import_weights
from workloads.weights.tensor_files import DType

TOKENS = np.random.default_rng(1).integers(0, UNTIED.vocab_size, 40)
REFERENCE = json.loads(Path(__file__).with_name("reference_logits.json").read_text())


def no_report(*_: object) -> None:
    pass


def imported(source: Path, model: ModelSpec | None = None) -> epath.Path:
    """Import the folder as its `config.json` says, or as a preset with the model that is given."""
    out = epath.Path(source.with_name("imported"))
    preset = ("small", load_preset("tiny").model_copy(update={"model": model})) if model else None
    import_weights(source, out, preset, no_report)
    return out


def imported_tensors(folder: Path, model: ModelSpec, tensors: Tensors | None = None, files: int = 1) -> epath.Path:
    """Import random tensors of the model, or those that are given, from files below `folder`."""
    return imported(write_files(folder / "files", random_tensors(model) if tensors is None else tensors, files), model)


type Imports = Callable[[str], epath.Path]


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Imports:
    """Import random tensors of a family once, from three files and a configuration."""

    @cache
    def import_family(family: str) -> epath.Path:
        folder = tmp_path_factory.mktemp("weights") / "files"
        return imported(write_files(folder, random_tensors(FAMILIES[family]), 3, CONFIGS[family]))

    return import_family


def exported(folder: epath.Path, dtype: DType) -> Path:
    out = Path(folder.with_name(f"exported-{dtype}"))
    export_weights(folder, epath.Path(out), dtype, no_report)
    return out


def all_tensors(folder: Path) -> Tensors:
    return {name: values for path in folder.glob("*.safetensors") for name, values in load_file(path).items()}


@pytest.mark.costs(cpu_seconds=20)
@pytest.mark.parametrize("family", FAMILIES)
def test_imported_weights_give_the_logits_of_other_implementations(family: str, imports: Imports) -> None:
    """`reference_logits.json` has the logits of the last four of `TOKENS`.

    Those of Gemma and of Qwen without experts are by transformers 4.57.1 and PyTorch 2.7.1 with eager attention in
    float32, from `AutoModelForCausalLM.from_pretrained` on a folder with `random_tensors(model)` and the exported
    config.json. The others are by the published architectures in NumPy in float64.
    """
    folder = imports(family)
    about = read_about(folder)
    assert about.model == FAMILIES[family]
    weights = read_whole(folder, about)
    found = plain_logits(weights, jnp.asarray(TOKENS[None]), FAMILIES[family])[0, -4:]
    assert np.abs(found - np.array(REFERENCE[family])).max() < 1e-5 * np.abs(found).max()


@pytest.mark.parametrize("family", FAMILIES)
def test_there_and_back_is_bitwise_the_same(family: str, imports: Imports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", 8000)
    tensors = random_tensors(FAMILIES[family])
    folder = exported(imports(family), "float32")
    found = all_tensors(folder)
    assert found.keys() == tensors.keys()
    assert all(found[name].tobytes() == values.tobytes() for name, values in tensors.items())
    files = {path.name: path for path in folder.glob("*.safetensors")}
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(files) > 1
    assert index["metadata"]["total_size"] == sum(values.nbytes for values in tensors.values())
    assert all(name in load_file(files[file]) for name, file in index["weight_map"].items())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_shorter_types_are_read_exactly_and_bfloat16_is_written(dtype: str, tmp_path: Path) -> None:
    tensors = {name: values.astype(jnp.dtype(dtype)) for name, values in random_tensors(TIED).items()}
    folder = imported_tensors(tmp_path, TIED, tensors)
    exact, short = all_tensors(exported(folder, "float32")), all_tensors(exported(folder, "bfloat16"))
    for name, values in tensors.items():
        assert np.array_equal(exact[name], values.astype(np.float32))
        assert short[name].tobytes() == values.astype(jnp.bfloat16).tobytes()


def test_the_folder_says_what_it_holds(imports: Imports, tmp_path: Path) -> None:
    about = read_about(imports("tied"))
    assert (about.step, about.sequence_length) == (0, 128)
    assert about.manifest == {"imported_from": str(imports("tied").with_name("files"))}
    with_preset = read_about(imported_tensors(tmp_path, TIED))
    assert with_preset.model == TIED
    assert with_preset.manifest == {"preset": "small", "imported_from": str(tmp_path / "files")}


def test_all_tensors_that_do_not_fit_are_named_at_once(tmp_path: Path) -> None:
    tensors = random_tensors(UNTIED)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(48, np.float32)
    tensors["model.norm.weight"] = np.zeros(17, np.float32)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(np.int8)
    with pytest.raises(InvalidSpec) as caught:
        imported_tensors(tmp_path, UNTIED, tensors)
    message = str(caught.value)
    assert "missing: model.layers.1.mlp.up_proj.weight [24, 16]" in message
    assert "unexpected: model.layers.0.self_attn.q_proj.bias [48]" in message
    assert "of another shape: model.norm.weight expected [16], got [17]" in message
    assert "of another type than BF16, F16, F32: lm_head.weight I8" in message
    assert message.endswith("choose the preset that these weights belong to")
    assert not (tmp_path / "imported").exists()


DEFAULT_ROPE = b'{"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}'


TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        (TENSORS, save(random_tensors(UNTIED))[:-100], "must be a whole safetensors file: .*download it again"),
        ("config.json", b"{", "must be JSON: Expecting property name .*; download it again"),
        ("config.json", b"\xff\xfe", "must be JSON: .*; download it again"),
        ("config.json", b"[1]", "must be a JSON object, got a list; download it again"),
        ("config.json", b'{"rope_theta": 5e5}', "rope_theta: expected 10000.0, got 500000.0"),
        ("config.json", b'{"rope_scaling": null}', r"rope_scaling: expected \{'rope_type': 'llama3'"),
        ("config.json", DEFAULT_ROPE, r"rope_scaling: expected \{"),
        ("config.json", b'{"model_type": "qwen3"}', "model_type: expected llama, got qwen3"),
        (INDEX, b"{", "must be JSON: "),
        (INDEX, b"{}", "must have a weight_map with the file of each tensor"),
        (INDEX, b'{"weight_map": {"a": "../b"}}', r"must name files next to it, but names \.\./b"),
        (INDEX, b'{"weight_map": {"a": ".."}}', r"must name files next to it, but names \.\."),
        (INDEX, b'{"weight_map": {"a": 1}}', "must have a weight_map"),
    ],
)
def test_a_damaged_file_and_the_description_of_another_model_are_named(
    file: str, content: bytes, fault: str, tmp_path: Path
) -> None:
    folder = write_files(tmp_path / "files", random_tensors(UNTIED))
    (folder / file).write_bytes(content)
    with pytest.raises(InvalidSpec, match=f"{file} {fault}"):
        imported(folder, UNTIED)
    with pytest.raises(InvalidSpec, match=r"must be a folder with \*.safetensors files, but has none"):
        imported(tmp_path, UNTIED)


ARCHITECTURES = {
    "untied": "LlamaForCausalLM",
    "mistral": "LlamaForCausalLM",
    "experts": "MixtralForCausalLM",
    "qwen3-experts": "Qwen3MoeForCausalLM",
}


@pytest.mark.parametrize(("family", "architecture"), ARCHITECTURES.items())
def test_the_configuration_that_is_written_is_that_of_the_model(
    family: str, architecture: str, imports: Imports, tmp_path: Path
) -> None:
    folder = exported(imports(family), "bfloat16")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert (config["torch_dtype"], config["max_position_embeddings"]) == ("bfloat16", 128)
    same = CONFIGS[family].keys() - {"model_type", "sliding_window", "intermediate_size"}
    assert {key: config[key] for key in same} == {key: CONFIGS[family][key] for key in same}
    again = import_weights(folder, epath.Path(tmp_path / "again"), None, no_report)
    assert again.model == FAMILIES[family]


def test_all_files_that_cannot_be_read_are_named_at_once_with_what_the_others_say(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "files", random_tensors(TIED), files=3)
    (folder / "model-1.safetensors").unlink()
    (folder / "model-2.safetensors").write_bytes(b"<!doctype html>")
    (folder / "config.json").write_text('{"rms_norm_eps": 0.1}')
    with pytest.raises(InvalidSpec) as caught:
        imported(folder, TIED)
    faults = str(caught.value).split("; ")
    assert "model-1.safetensors must be a whole safetensors file" in faults[0]
    assert "model-2.safetensors must be a whole safetensors file" in faults[2]
    assert "config.json rms_norm_eps: expected 1e-05, got 0.1" in faults
    assert not any("missing: " in fault for fault in faults)


@pytest.mark.parametrize("equal", [True, False])
def test_a_tied_table_may_be_there_twice_if_it_is_the_same(equal: bool, tmp_path: Path) -> None:
    tensors = random_tensors(QWEN3)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * (1 if equal else 2)
    if equal:
        found = all_tensors(exported(imported_tensors(tmp_path, QWEN3, tensors), "float32"))
        assert found.keys() == tensors.keys() - {"lm_head.weight"}
        return
    with pytest.raises(InvalidSpec, match=r"lm_head.weight differs from model.embed_tokens.weight"):
        imported_tensors(tmp_path, QWEN3, tensors)


def test_a_model_that_no_family_has_is_not_exported_or_imported(tmp_path: Path) -> None:
    model = QWEN3.model_copy(update={"logit_soft_cap": 30.0})
    with pytest.raises(
        InvalidSpec, match="a model with logit_soft_cap, query_key_norm fits none of the supported layouts"
    ):
        imported_tensors(tmp_path, model, random_tensors(QWEN3))


def test_the_section_that_is_printed_replaces_the_model_of_any_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_files(tmp_path / "files", random_tensors(QWEN3), config=CONFIGS["qwen3"])
    assert main(["import", str(files), str(tmp_path / "imported")]) == 0
    section = yaml.safe_load(capsys.readouterr().out)["model"]
    for name in ("gemma-3-1b", "mixtral-8x7b", "tiny"):
        assert load_preset(name).model_with(section) == QWEN3


def test_a_preset_is_compared_with_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_files(tmp_path / "files", random_tensors(TIED), config=CONFIGS["tied"])
    assert main(["import", str(files), str(tmp_path / "imported"), "--preset", "tiny"]) == ExitCode.INVALID_SPEC
    message = capsys.readouterr().err
    assert "vocab_size: expected 256, got 32" in message
    assert "of another shape: model.embed_tokens.weight expected [256, 64], got [32, 16]" in message


def test_parameters_that_changed_since_are_not_exported(tmp_path: Path) -> None:
    folder = imported_tensors(tmp_path, TIED)
    about = read_about(folder)
    about.fingerprints["parameters.embedding"] = "0" * 16
    (folder / "export.json").write_text(about.model_dump_json())
    with pytest.raises(InvalidSpec, match=r"differs from what was written: parameters.embedding \(expected 0{16}"):
        exported(folder, "float32")


def test_no_folder_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "imported").mkdir()
    with pytest.raises(InvalidSpec, match="must be a new folder"):
        imported_tensors(tmp_path, TIED)
