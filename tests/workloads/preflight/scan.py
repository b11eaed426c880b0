"""The program whose compiled text is `scan.txt`."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.training.mesh import AXES, FSDP, REPLICA


def lowered_scan(mesh: Mesh, layers: int, embed: int, tokens: int) -> jax.stages.Lowered:
    """Lower layers with gathered weights and `tokens` a chip, and one sum of the weights' shards between the slices."""

    def step(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        def layer(x: jax.Array, shard: jax.Array) -> tuple[jax.Array, None]:
            return x @ jax.lax.all_gather(shard, FSDP, tiled=True), None

        return jax.lax.scan(layer, x, weights)[0], jax.lax.psum(weights, REPLICA)

    def array(shape: tuple[int, ...], split: PartitionSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, split))

    splits = (PartitionSpec(AXES), PartitionSpec(None, FSDP))
    over_mesh = jax.shard_map(step, mesh=mesh, in_specs=splits, out_specs=splits, check_vma=False)
    x, weights = array((mesh.size * tokens, embed), splits[0]), array((layers, embed, embed), splits[1])
    return jax.jit(over_mesh).lower(x, weights)
