from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax.contrib
import pytest
from etils import epath

from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import ALONE, batches_of, mesh_of, program_of
from workloads.spec import ExpertsSpec, JobSpec, MeshSpec, ModelSpec
from workloads.training.checkpoint import Checkpoints, Record
from workloads.training.fingerprint import compile_fingerprints
from workloads.training.layout import BLOCKS, Tree, partition_specs
from workloads.training.model import initial_parameters
from workloads.training.optimizer import build_optimizer, muon, orthogonalised, updates
from workloads.training.step import TrainState

pytestmark = pytest.mark.costs(cpu_seconds=30)


def test_matrices_decay_and_norm_scales_do_not() -> None:
    job = small_job(Path("unused"))
    spec = job.optimizer.model_copy(update={"warmup_steps": 0})
    optimizer = build_optimizer(spec, job.model, steps=10)
    weights: Tree = {"blocks": {"gate": jnp.ones((2, 3, 4)), "mlp_scale": jnp.ones((2, 4))}}
    updates: Tree = optimizer.update(jax.tree.map(jnp.zeros_like, weights), optimizer.init(weights), weights)[0]
    assert (updates["blocks"]["gate"] < 0).all()
    assert (updates["blocks"]["mlp_scale"] == 0).all()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_optimizer_counts_the_updates_that_its_schedule_goes_by(kind: str) -> None:
    job = small_job(Path("unused"))
    optimizer = build_optimizer(job.optimizer.model_copy(update={"kind": kind}), job.model, steps=10)
    weights: Tree = {"embedding": jnp.ones((2, 3))}
    state = optimizer.init(weights)
    for _ in range(3):
        state = optimizer.update(weights, state, weights)[1]
    assert updates(state) == 3


DENSE = ModelSpec(
    vocab_size=32, embed_dim=16, mlp_dim=48, layers=6, query_heads=8, kv_heads=2, head_dim=4, tied_embedding=True
)
EXPERTS = DENSE.model_copy(update={"experts": ExpertsSpec(count=4, per_token=2, balance_weight=0)})


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_singular_values_come_close_to_one_and_singular_vectors_stay(shape: tuple[int, int]) -> None:
    rows, columns = shape
    left, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(rows, min(shape))))
    right, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(columns, min(shape))))
    matrix = (left * np.linspace(1, 20, min(shape))) @ right.T
    found = left.T @ np.asarray(orthogonalised(jnp.asarray(matrix, jnp.float32))) @ right
    assert np.diag(found) == pytest.approx(1, abs=0.35)
    assert np.abs(found - np.diag(np.diag(found))).max() < 1e-4


def matrices(model: ModelSpec) -> Tree:
    """Return the part of a model that Muon updates: the matrices of its layers."""
    layers: Tree = initial_parameters(model, seed=0)[BLOCKS]
    return {BLOCKS: {name: leaf for name, leaf in layers.items() if not name.endswith("scale")}}


def compiled_updates(mesh: MeshSpec, model: ModelSpec) -> jax.stages.Compiled:
    """Compile the first updates from gradients with the shapes of the weights, on a mesh."""
    transform, specs = muon(0.95, model), partition_specs(matrices(model))

    def first(gradients: Tree) -> Tree:
        return transform.update(gradients, transform.init(gradients))[0]

    whole = jax.shard_map(first, mesh=mesh_of(mesh), in_specs=(specs,), out_specs=specs, check_vma=False)
    return jax.jit(whole).lower(matrices(model)).compile()


@pytest.mark.parametrize(
    "mesh",
    [
        MeshSpec(replica=1, fsdp=8),
        MeshSpec(replica=2, fsdp=2, tensor=2),
        MeshSpec(replica=1, stage=2, fsdp=2, tensor=2),
        MeshSpec(replica=1, stage=2, fsdp=1),
    ],
    ids=str,
)
def test_on_a_mesh_each_matrix_gets_the_update_that_it_gets_on_one_device(mesh: MeshSpec) -> None:
    gradients = matrices(EXPERTS)
    alone = compiled_updates(MeshSpec(replica=1, fsdp=1), EXPERTS)(gradients)
    on_mesh = compiled_updates(mesh, EXPERTS)(gradients)
    for name, expected in alone[BLOCKS].items():
        assert np.abs(expected).min() < np.abs(expected).max()
        np.testing.assert_allclose(on_mesh[BLOCKS][name], expected, rtol=2e-4, atol=2e-5, err_msg=name)


def test_no_device_holds_the_matrices_of_many_layers_whole() -> None:
    mesh = MeshSpec(replica=1, fsdp=4)
    few, many = (
        compiled_updates(mesh, DENSE.model_copy(update={"layers": layers})).memory_analysis() for layers in (4, 32)
    )
    assert few
    assert many
    assert many.output_size_in_bytes > 7 * few.output_size_in_bytes
    # Additional layers add only their momentum before the exchange. If they were gathered, they would take four times
    # as much.
    own = many.output_size_in_bytes - few.output_size_in_bytes
    assert many.temp_size_in_bytes - few.temp_size_in_bytes < 1.5 * own


def muon_job(folder: Path, **sizes: int) -> JobSpec:
    return changed(small_job(folder, **sizes), optimizer={"kind": "muon", "warmup_steps": 0})


def test_a_step_is_that_of_optax_which_knows_no_mesh_and_of_adamw_for_embedding_and_scales(tmp_path: Path) -> None:
    job = muon_job(tmp_path, replica=1, fsdp=1)
    before, after = first_step(job, tmp_path)
    momentum: Tree = after.optimizer[0].inner_state[0].trace
    for name in ("query_key_value", "out", "gate", "up", "down"):
        for layer in range(job.model.layers):
            old, new = (weights[BLOCKS][name][layer] for weights in (before, after.parameters))
            # After one step, the momentum is the gradient, and its norm has no effect.
            for part in parts(name, job.model):
                direction = directed(momentum[BLOCKS][name][layer][:, part])
                size = 0.2 * max(direction.shape) ** 0.5
                expected = size * direction + job.optimizer.weight_decay * old[:, part]
                found = (old[:, part] - new[:, part]) / job.optimizer.learning_rate
                np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)
    _, adamw = first_step(changed(job, optimizer={"kind": "adamw"}), tmp_path)
    both: list[Tree] = [{**state.parameters, **state.parameters[BLOCKS]} for state in (after, adamw)]
    with_muon, with_adamw = both
    for name in ("embedding", "final_scale", "mlp_scale"):
        np.testing.assert_allclose(with_muon[name], with_adamw[name], rtol=1e-6)
    assert not np.allclose(with_muon["gate"], with_adamw["gate"], atol=1e-5)


def first_step(job: JobSpec, folder: Path) -> tuple[Tree, TrainState]:
    """Return the initial weights, and the state after one step."""
    program = program_of(job)
    state = program.compile_initial()()
    before = jax.tree.map(np.array, state.parameters)
    return before, program.compile_step()(state, batches_of(job, program, folder).training(0))[0]


def parts(name: str, model: ModelSpec) -> list[np.ndarray]:
    """Return the columns of the matrices inside one array: queries, keys and values of all heads."""
    if name != "query_key_value":
        return [np.arange(model.embed_dim if name in ("out", "down") else model.mlp_dim)]
    grouped = model.queries_per_kv_head
    numbers = np.arange(model.kv_heads * (grouped + 2) * model.head_dim)
    kind = np.minimum(np.maximum(numbers // model.head_dim % (grouped + 2) - grouped + 1, 0), 2)
    return [numbers[kind == number] for number in range(3)]


def directed(gradient: jax.Array) -> jax.Array:
    """Return the first update of Muon in optax."""
    reference = optax.contrib.scale_by_muon(weight_dimension_numbers={"w": optax.contrib.MuonDimensionNumbers()})
    weights = {"w": gradient}
    found: Tree = reference.update(weights, reference.init(weights))[0]
    return found["w"]


def test_its_state_comes_back_bit_by_bit_from_a_checkpoint(tmp_path: Path) -> None:
    job = muon_job(tmp_path)
    program = program_of(job)
    step, batches = program.compile_step(), batches_of(job, program, tmp_path)
    state, _ = step(program.compile_initial()(), batches.training(0))
    take = compile_fingerprints(program.state_shapes)
    checkpoints = Checkpoints(epath.Path(tmp_path / "checkpoints"), job.training, ALONE)
    checkpoints.save(1, state, Record(take(state)[0], {}))
    assert list(checkpoints.finished(wait=True)) == [1]
    restored = checkpoints.restore(program.state_shapes, take, lambda line: pytest.fail(line.line()))
    checkpoints.close()
    assert restored is not None
    assert updates(restored.optimizer) == 1
    continued, came_back = step(state, batches.training(1))[0], step(restored, batches.training(1))[0]
    jax.tree.map(np.testing.assert_array_equal, came_back, continued)
