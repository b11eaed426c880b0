import hashlib
import itertools
import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.checkout import ROOT
from tests.workloads.jobs import small_job
from workloads.data.documents import TextField, Turns
from workloads.data.encoders import ByteEncoder
from workloads.data.prepare import Request, prepare
from workloads.spec import ExitCode, MixedSpec, MixtureSpec, StandardLibrarySpec, TokenFileSpec
from workloads.training import read_ahead
from workloads.training.data import AHEAD_BATCHES, Batches, Order, Part, find_element, require_same_rows, shares
from workloads.training.failures import InvalidSpec, exit_code
from workloads.training.rows import Dataset, Rows, load_rows
from workloads.training.runtime import Processes

ROW_COUNT, TRAINING_COUNT, BATCH = 200, 160, 8


def numbered(setting: str, first: int, count: int, training_count: int, weight: int = 1) -> Dataset:
    rows = np.repeat(np.arange(first, first + count, dtype=np.uint8)[:, None], 5, axis=1)
    return Dataset(setting, rows, training_count, weight, "digest")


def numbered_rows(training_count: int = TRAINING_COUNT) -> Rows:
    """Return rows that contain their own number."""
    return Rows((numbered("data", 0, ROW_COUNT, training_count),), "uint8")


def batches(seed: int, devices: int, rows: Rows | None = None, **training: Any) -> Batches:
    """Return batches of `rows` over some devices. They are of rows that contain their own number, if none are given."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
    sizes = {"global_batch": BATCH, "evaluation_batches": 2} | training
    spec = small_job(Path("unused"), seed=seed, **sizes).training
    return Batches(rows or numbered_rows(), spec, NamedSharding(mesh, PartitionSpec("devices")))


def row_numbers(batch: jax.Array) -> list[int]:
    return np.asarray(batch)[:, 0].tolist()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 10**6))
def test_the_batch_of_a_step_depends_on_seed_and_step_alone(seed: int, step: int) -> None:
    expected = row_numbers(batches(seed, 1).training(step))
    for devices in (2, 8):
        batch = batches(seed, devices).training(step)
        shards = sorted(batch.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        assert [number for shard in shards for number in row_numbers(shard.data)] == expected


def test_the_shuffle_is_the_one_that_earlier_runs_were_trained_with() -> None:
    """Another shuffle would train existing runs on rows twice. It must be refused by `data.order` of the manifests."""
    assert Order((Part(0, 160, 1),), 16, 3).training(0, range(8)) == [136, 7, 27, 57, 138, 124, 159, 78]
    assert Order((Part(0, 160, 1),), 160, 3).training(1, range(8)) == [118, 145, 12, 137, 53, 152, 97, 8]
    large = Order((Part(0, 1_000_003, 1),), 1, 2**32 - 1)
    assert [large.training(number, [0]) for number in (0, 1_000_003)] == [[646826], [645888]]


def test_the_digest_of_an_order_changes_with_what_it_does_alone() -> None:
    orders = [
        Order((Part(0, 160, 1),), 16, 3),
        Order((Part(0, 160, 1),), 8, 3),
        Order((Part(0, 160, 1),), 16, 4),
        Order((Part(0, 161, 1),), 16, 3),
        Order((Part(0, 160, 1), Part(160, 10, 1)), 16, 3),
        Order((Part(0, 160, 1), Part(160, 10, 2)), 16, 3),
    ]
    assert orders[0].digest == orders[1].digest
    assert len({order.digest for order in orders}) == 5


WEIGHTS = st.lists(st.integers(1, 1000), min_size=1, max_size=9)


@settings(max_examples=50, deadline=None)
@given(WEIGHTS, st.integers(0, 10**9), st.integers(1, 300))
def test_any_window_of_a_mixture_has_the_share_of_each_weight(weights: list[int], start: int, length: int) -> None:
    found = [find_element(place, weights)[0] for place in range(start, start + length)]
    depth = (len(weights) - 1).bit_length()
    for number, weight in enumerate(weights):
        assert abs(found.count(number) - length * weight / sum(weights)) < depth + 1e-6


@settings(max_examples=50, deadline=None)
@given(WEIGHTS, st.integers(0, 200))
def test_a_mixture_takes_the_elements_of_each_sequence_one_after_the_other(weights: list[int], length: int) -> None:
    found = [find_element(place, weights) for place in range(length)]
    for number, share in enumerate(shares(length, weights)):
        assert [within for one, within in found if one == number] == list(range(share))


def mixture() -> Rows:
    """Return three datasets with rows 0 to 99, 100 to 159, and 160 to 249. The last fifth of each is held out."""
    parts = [("a", 0, 100, 5), ("b", 100, 60, 3), ("c", 160, 90, 2)]
    datasets = [
        numbered(f"data.datasets.{name}", first, count, count * 4 // 5, weight) for name, first, count, weight in parts
    ]
    return Rows(tuple(datasets), "uint8")


@pytest.mark.parametrize("devices", [1, 8])
def test_a_mixture_has_one_order_on_any_devices_from_any_step_on(devices: int) -> None:
    source = batches(5, devices, mixture(), global_batch=40, evaluation_batches=1)
    order = Order.of(mixture(), 40, 5)
    whole = [row for step in range(8) for row in order.training(step, range(40))]
    # These are steps 3 to 7, as after a restart, and then an earlier one, as after a rollback.
    seen = {step: row_numbers(source.training(step)) for step in (3, 4, 5, 6, 7, 2)}
    assert all(whole[step * 40 : step * 40 + 40] == rows for step, rows in seen.items())
    assert [sum(low <= row < high for row in whole) for low, high in ((0, 80), (100, 148), (160, 232))] == [160, 96, 64]
    of_b = [row for row in whole if 100 <= row < 160]
    assert sorted(of_b[:48]) == sorted(of_b[48:]) == list(range(100, 148))
    assert of_b[:48] != of_b[48:]
    assert sorted(row_numbers(source.held_out(0))) == [*range(80, 100), *range(148, 160), *range(232, 240)]


def test_a_dataset_with_too_few_rows_for_its_weight_is_named_with_all_others() -> None:
    batches(3, 1, numbered_rows(BATCH))
    with pytest.raises(InvalidSpec, match="batches of 8 sequences need 8 training rows, got 7"):
        batches(3, 1, numbered_rows(BATCH - 1))
    with pytest.raises(InvalidSpec) as caught:
        batches(0, 1, mixture(), global_batch=200, evaluation_batches=1)
    message = str(caught.value)
    assert "data.datasets.a: 1 evaluation batches of 200 sequences need 100 held-out rows, got 20" in message
    assert "data.datasets.b: 1 evaluation batches of 200 sequences need 60 held-out rows, got 12" in message
    assert "data.datasets.b: batches of 200 sequences need 60 training rows, got 48" in message
    assert "data.datasets.c: 1 evaluation batches of 200 sequences need 40 held-out rows, got 18" in message


@st.composite
def starts(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Draw hosts, steps trained and steps saved for each attempt of a run."""
    trained = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 7)), min_size=1, max_size=4))
    return [(hosts, steps, draw(st.integers(0, steps))) for hosts, steps in trained]


@pytest.mark.costs(cpu_seconds=20)
@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**32 - 1), starts())
def test_every_row_is_trained_on_once_an_epoch_over_any_hosts_and_restarts(
    rows: int, batch: int, seed: int, starts: list[tuple[int, int, int]]
) -> None:
    trained: list[int] = []
    for hosts, steps, saved in starts:
        first, parts = len(trained) // batch, np.array_split(np.arange(batch), hosts)
        order = Order((Part(0, rows, 1),), batch, seed)
        read = [[order.training(step, own) for own in parts] for step in range(first, first + steps)]
        trained += [row for by_host in read[:saved] for own in by_host for row in own]
    epochs = [trained[start : start + rows] for start in range(0, len(trained), rows)]
    assert all(len(set(epoch)) == len(epoch) and set(epoch) <= set(range(rows)) for epoch in epochs)
    alone = Order((Part(0, rows, 1),), batch, seed)
    assert trained == [row for step in range(len(trained) // batch) for row in alone.training(step, range(batch))]


@pytest.mark.parametrize("devices", [3, 5, 7])
def test_rows_of_zeros_follow_a_batch_that_does_not_divide(devices: int) -> None:
    uneven, alone = batches(3, devices), batches(3, 1)
    for number in (0, 1):
        for batch, expected in (
            (uneven.training(number), alone.training(number)),
            (uneven.held_out(number), alone.held_out(number)),
        ):
            assert row_numbers(batch)[:BATCH] == row_numbers(expected)
            assert len(batch) == devices * -(-BATCH // devices)
            assert not np.any(np.asarray(batch)[BATCH:])


def test_rows_are_the_standard_library_and_the_same_when_read_again(tmp_path: Path) -> None:
    spec = small_job(Path("unused")).data
    assert isinstance(spec, StandardLibrarySpec)
    built, again = load_rows(spec, 256, 64, tmp_path / "one"), load_rows(spec, 256, 64, tmp_path / "one")
    elsewhere = load_rows(spec, 256, 64, tmp_path / "two")
    assert built.digest == again.digest == elsewhere.digest
    assert built.datasets[0].tokens.shape == (spec.max_bytes // 65, 65)
    assert b"import" in built.read(list(range(50))).tobytes()
    assert len(list((tmp_path / "one").iterdir())) == 1


def test_a_host_with_other_data_is_named() -> None:
    class ThreeHosts(Processes):
        def gather(self, key: str, value: Any) -> list[Any]:
            return [value, ("host-1", value[1]), ("host-2", "another digest")]

    with pytest.raises(InvalidSpec, match=r"but host-2 \(another dige\) differ"):
        require_same_rows(numbered_rows(), ThreeHosts(0, 3, "host-0"))


def token_folder(tmp_path: Path, text: bytes) -> TokenFileSpec:
    (tmp_path / "text").write_bytes(text)
    asked = Request((str(tmp_path / "text"),), str(tmp_path / "tokens"), TextField("text"), "")
    prepare(asked, ByteEncoder(), lambda _: None)
    return TokenFileSpec(source="token-file", path=asked.output, held_out_fraction=0.05)


def test_rows_are_as_wide_as_the_models_vocabulary_needs(tmp_path: Path) -> None:
    rows = load_rows(token_folder(tmp_path, b"some text, some text"), 50_304, 4, tmp_path)
    assert rows.read([1]).dtype == np.uint16
    assert rows.read([1]).tolist() == [list(b"text,")]


def test_one_folder_has_the_digest_that_manifests_of_earlier_runs_hold(tmp_path: Path) -> None:
    spec = token_folder(tmp_path, b"some text, some text")
    earlier = json.dumps([hashlib.sha256(b"some text, some text").hexdigest(), 4, 4])
    assert load_rows(spec, 256, 4, tmp_path).digest == hashlib.sha256(earlier.encode()).hexdigest()


def test_data_that_cannot_work_stops_the_job_for_good(tmp_path: Path) -> None:
    spec = token_folder(tmp_path, bytes(1000))
    with pytest.raises(InvalidSpec, match="model.vocab_size must be at least the 256 of the data's tokens, got 255"):
        load_rows(spec, 255, 4, tmp_path)
    (tmp_path / "tokens" / "tokens-00000.bin").write_bytes(bytes(999))
    with pytest.raises(InvalidSpec, match=r"data: .*/tokens/tokens-00000.bin: expected 1000 bytes, got 999") as caught:
        load_rows(spec, 256, 4, tmp_path)
    assert exit_code(caught.value) == ExitCode.INVALID_SPEC


def mixture_of(tmp_path: Path, **weights: float) -> MixtureSpec:
    folders: dict[str, MixedSpec] = {}
    for name, weight in weights.items():
        (tmp_path / name).mkdir()
        text = token_folder(tmp_path / name, name.encode() * 300)
        folders[name] = MixedSpec(path=text.path, weight=weight)
    return MixtureSpec(source="mixture", datasets=folders, held_out_fraction=0.1)


class Unsteady:
    """Rows from storage that fails at every other read."""

    def __init__(self, rows: np.ndarray):
        self.shape, self._rows, self._reads = rows.shape, rows, itertools.count()

    def __getitem__(self, rows: list[int]) -> np.ndarray:
        if next(self._reads) % 2 == 0:
            raise OSError("503")
        return self._rows[rows]


def test_storage_that_fails_now_and_then_changes_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FIRST_WAIT_SECONDS", 0.001)
    (dataset,) = numbered_rows().datasets
    assert isinstance(dataset.tokens, np.ndarray)
    unsteady = Rows((replace(dataset, tokens=Unsteady(dataset.tokens)),), "uint8")
    with batches(0, 8) as one, batches(0, 8, unsteady) as other:
        for number in (0, 1, 7, 3):
            assert row_numbers(other.training(number)) == row_numbers(one.training(number))
        for number in (0, 1, 0):
            assert row_numbers(other.held_out(number)) == row_numbers(one.held_out(number))


def test_a_mixture_of_folders_is_read_by_exact_weights_in_the_order_of_names(tmp_path: Path) -> None:
    spec = mixture_of(tmp_path, web=0.7, code=0.3)
    rows = load_rows(spec, 256, 3, tmp_path)
    assert [(one.setting, one.weight, one.count) for one in rows.datasets] == [
        ("data.datasets.code", 3, 300),
        ("data.datasets.web", 7, 225),
    ]
    assert rows.read([300, 0, 299, 301]).tolist() == [list(b"webw"), list(b"code"), list(b"code"), list(b"ebwe")]
    order = Order.of(rows, 10, 0)
    assert sum(row < 300 for step in range(100) for row in order.training(step, range(10))) == 300
    turned = spec.model_copy(update={"datasets": dict(reversed([*spec.datasets.items()]))})
    heavier = spec.datasets["web"].model_copy(update={"weight": 0.8})
    other = spec.model_copy(update={"datasets": {**spec.datasets, "web": heavier}})
    digests = [load_rows(each, 256, 3, tmp_path).digest for each in (spec, turned, other)]
    assert digests[0] == digests[1] != digests[2]


def test_all_that_is_wrong_with_a_mixture_is_said_at_once(tmp_path: Path) -> None:
    spec = mixture_of(tmp_path, a=1, b=2, c=3)
    Path(spec.datasets["a"].path, "tokens-00000.bin").write_bytes(b"")
    Path(spec.datasets["b"].path, "manifest.json").unlink()
    with pytest.raises(InvalidSpec) as caught:
        load_rows(spec, 100, 3, tmp_path)
    message = str(caught.value).split("; ")
    assert message[0].startswith(
        f"data.datasets.a: {spec.datasets['a'].path}/tokens-00000.bin: expected 300 bytes, got 0"
    )
    assert any(part.startswith("data.datasets.b: ") and "got no manifest.json" in part for part in message)
    assert "model.vocab_size must be at least the 256 of the data's tokens, got 100" in message


def conversations(tmp_path: Path) -> TokenFileSpec:
    (tmp_path / "chat.jsonl").write_text('{"prompt": "12", "completion": "34"}\n' * 40)
    fields = Turns(("prompt", "completion"), "{content}", begin="")
    asked = Request((str(tmp_path / "chat.jsonl"),), str(tmp_path / "chat"), fields, "", sequence_length=3)
    prepare(asked, ByteEncoder(), lambda _: None)
    return TokenFileSpec(source="token-file", path=asked.output, held_out_fraction=0.05)


def test_rows_of_a_mixture_carry_marks_if_prompts_are_not_learned_and_none_if_they_are(tmp_path: Path) -> None:
    chat, text = conversations(tmp_path), token_folder(tmp_path, b"abcd" * 30)
    datasets = {"chat": MixedSpec(path=chat.path, weight=1), "text": MixedSpec(path=text.path, weight=1)}
    spec = MixtureSpec(source="mixture", datasets=datasets, held_out_fraction=0.05)
    rows, whole = (load_rows(spec, 256, 3, tmp_path, marked) for marked in (True, False))
    assert (rows.dtype, whole.dtype) == ("uint16", "uint8")
    found = rows.read([0, 40])
    assert (found & 1).tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert bytes((found >> 1).astype(np.uint8)) == bytes(whole.read([0, 40])) == b"1234abcd"


def test_a_loss_on_completions_needs_data_that_marks_its_prompts(tmp_path: Path) -> None:
    spec = token_folder(tmp_path, b"abcd" * 30)
    with pytest.raises(InvalidSpec, match="training.loss_on is completions, but no data marks its prompts; prepare"):
        load_rows(spec, 256, 3, tmp_path, marked=True)
    with pytest.raises(InvalidSpec, match="expected training.sequence_length 3, .* got 7; set it"):
        load_rows(conversations(tmp_path), 256, 7, tmp_path, marked=True)


def test_datasets_of_several_tokenizers_are_not_mixed(tmp_path: Path) -> None:
    spec = mixture_of(tmp_path, a=1, b=1)
    manifest = Path(spec.datasets["b"].path, "manifest.json")
    manifest.write_text(manifest.read_text().replace('"name": "bytes"', '"name": "tokenizer.json"'))
    with pytest.raises(
        InvalidSpec, match=r"data.datasets.b: expected tokens of .*'bytes'.* which made data.datasets.a"
    ):
        load_rows(spec, 256, 3, tmp_path)


HOST = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.workloads.jobs import small_job
from workloads.training.data import Batches
from workloads.training.rows import Dataset, Rows

class RecordingReader:
    shape = (200, 5)
    def __getitem__(self, rows):
        # In one piece, since several threads read.
        sys.stdout.write(" ".join(map(str, rows)) + "\\n")
        return np.array(rows, np.uint8)[:, None].repeat(5, axis=1)

jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
job = small_job("unused", global_batch=8, steps=1, seed=3)
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("devices",)), PartitionSpec("devices"))
rows = Rows((Dataset("data", RecordingReader(), 160, 1, ""),), "uint8")
batch = Batches(rows, job.training, sharding).training(0)
assert batch.shape == (8, 5)
"""


@pytest.mark.costs(cpu_seconds=15)
def test_two_hosts_read_half_of_the_batch_each() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, coordinator, str(index)],
            cwd=ROOT,
            env={"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        read = [[[*map(int, line.split())] for line in host.communicate(timeout=240)[0].splitlines()] for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    order = Order((Part(0, 160, 1),), batch=8, seed=3)
    for host, own in enumerate((range(4), range(4, 8))):
        expected = [order.training(number, own) for number in range(AHEAD_BATCHES + 1)]
        assert expected[0] in read[host]
        assert all(rows in expected for rows in read[host])
