"""A training step with shard_map and optax, on eight devices."""

# %% [markdown]
# # A training step with shard_map and optax
#
# Eight devices: the batch is cut in two, the hidden layer in four. The step says itself what a device computes and
# which devices exchange what. It needs `distxla[jax]` and optax, and no flags: `python train_shard_map.py`.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

import distxla as dx
import distxla.jax as dxj

mesh = dxj.make_mesh((2, 4), ("data", "model"))
optimiser = optax.adamw(1e-2)

# %% [markdown]
# The parameters, and how each is cut: the hidden layer's width over `model`. The moments of Adam are cut as the
# parameters are, its step counter is not.

# %%
random = np.random.default_rng(0)
params = {
    "in": random.normal(0, 0.3, (8, 32)).astype(np.float32),
    "out": random.normal(0, 0.3, (32, 1)).astype(np.float32),
}
x = random.normal(size=(64, 8)).astype(np.float32)
y = np.sin(x.sum(axis=1, keepdims=True))
state = optimiser.init(params)

param_specs = {"in": P(None, "model"), "out": P("model", None)}
state_specs = optax.tree_utils.tree_map_params(
    optimiser, lambda _, spec: spec, state, param_specs, transform_non_params=lambda _: P()
)

# %% [markdown]
# The step of one device, on its shards. `psum` adds up the parts of the hidden layer. `pmean` makes the loss that of
# the whole batch, and so the gradients are those of the whole batch, too.
#
# They need no collective of their own. Both parts of the batch use the same parameters; for those JAX adds up the
# gradients of all parts itself. A `pmean` of the gradients in place of the loss's comes too late: it averages sums
# that are equal on all devices already, and the step takes twice the gradient.


# %%
def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["in"])
    predicted = jax.lax.psum(hidden @ params["out"], "model")
    return jax.lax.pmean(jnp.mean((predicted - y) ** 2), "data")


def step(params, state, x, y):
    loss, slopes = jax.value_and_grad(loss_of)(params, x, y)
    updates, state = optimiser.update(slopes, state, params)
    return optax.apply_updates(params, updates), state, loss


sharded = jax.shard_map(
    step,
    mesh=mesh,
    in_specs=(param_specs, state_specs, P("data"), P("data")),
    out_specs=(param_specs, state_specs, P()),
)

# %% [markdown]
# `check` looks for deadlocks without running anything. Calls do not wait for the devices: a step takes the pending
# results of the last one, and parameters stay where they are.

# %%
with dx.Cluster(partitions=8) as cluster:
    train = dxj.jit(sharded, cluster=cluster)
    print(train.compile(params, state, x, y).check().outcome)
    # -> Outcome.SAFE
    losses = []
    for _ in range(40):
        params, state, loss = train(params, state, x, y)
        losses.append(loss)
    print(f"loss {float(losses[0]):.3f}, after 40 steps {float(losses[-1]):.3f}")
    # -> loss 0.953, after 40 steps 0.162
    print(params["in"].shape, "in shards of", params["in"].shards[0].data.shape)
    # -> (8, 32) in shards of (8, 8)
