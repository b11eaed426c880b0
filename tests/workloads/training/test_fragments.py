"""`workloads.training.fragments`: parts of the weights that are exchanged one after the other."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from tests.workloads.training.running import mesh_of
from workloads.spec import MeshSpec
from workloads.training.fragments import Fragments
from workloads.training.layout import BLOCKS, Tree, partition_specs
from workloads.training.slice_program import Shards

LAYERS, ROWS = 6, 20
LAYERS_OF = {"gate": (LAYERS, 4, 3), "mlp_scale": (LAYERS, 4)}
OTHERS = {"embedding": (ROWS, 4), "final_scale": (4,)}
FLOAT32 = np.dtype(np.float32)


def tree_of(seed: int) -> Tree:
    """Return weights of six layers on two stages of two devices each."""
    mesh, random = mesh_of(MeshSpec(replica=1, stage=2, fsdp=2)), np.random.default_rng(seed)
    layers = {name: np.zeros(shape) for name, shape in LAYERS_OF.items()}
    zeros: Tree = {BLOCKS: layers, **{name: np.zeros(shape) for name, shape in OTHERS.items()}}
    return jax.tree.map(
        lambda leaf, spec: jax.device_put(
            random.standard_normal(leaf.shape).astype(np.float32), NamedSharding(mesh, spec)
        ),
        zeros,
        partition_specs(zeros),
    )


def require_equal(left: Tree, right: Tree) -> None:
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert one.sharding == other.sharding
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_fragments_together_are_the_tree(count: int) -> None:
    tree = tree_of(0)
    fragments = Fragments(tree, count)
    vectors = [fragments.take(tree, number) for number in range(count)]
    assert [vector.size for vector in vectors] == fragments.sizes
    assert sum(fragments.sizes) == fragments.size
    require_equal(fragments.tree(vectors), tree)


@pytest.mark.parametrize("count", [1, 3])
def test_only_the_rows_of_one_fragment_are_replaced(count: int) -> None:
    tree, other = tree_of(0), tree_of(1)
    fragments = Fragments(tree, count)
    for number in range(count):
        tree = fragments.put_into(tree, number, fragments.take(other, number))
        for after in range(number + 1, count):
            np.testing.assert_array_equal(fragments.take(tree, after), fragments.take(tree_of(0), after))
    require_equal(tree, other)


def test_one_fragment_is_the_vector_of_the_tree() -> None:
    tree = tree_of(0)
    np.testing.assert_array_equal(Fragments(tree, 1).take(tree, 0), Shards(tree, FLOAT32).vector(tree))


def test_a_fragment_has_every_so_manyth_layer_of_each_stage_and_its_share_of_the_tables() -> None:
    tree = tree_of(0)
    fragments = Fragments(tree, 3)
    blocks, table = np.asarray(tree["blocks"]["gate"]), np.asarray(tree["embedding"])
    for number, vector in enumerate(fragments.take(tree, one) for one in range(3)):
        for layer in range(LAYERS):
            assert np.isin(blocks[layer], vector).all() == (layer % 3 == number)
        assert np.isin(table, vector).sum() / table.size == pytest.approx(1 / 3, abs=0.1)
    assert max(fragments.sizes) < 0.4 * fragments.size


def test_a_vector_may_change_after_it_has_become_a_tree() -> None:
    tree = tree_of(0)
    vector = Fragments(tree, 1).take(tree, 0)
    made = Fragments(tree, 1).tree([vector])
    vector[:] = 0
    require_equal(made, tree)
