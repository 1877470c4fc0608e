"""A training step that is partitioned automatically."""

# %% [markdown]
# # The same training step, partitioned automatically
#
# The function is that of one device, with no collective in it. Shardings of arguments and results say where arrays
# are; XLA's partitioner inserts the collectives. `python train_automatic.py`.

# %%
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distxla as dx
import distxla.jax as dxj

mesh = dxj.make_mesh((2, 4), ("data", "model"))
optimiser = optax.adamw(1e-2)

random = np.random.default_rng(0)
params = {
    "in": random.normal(0, 0.3, (8, 32)).astype(np.float32),
    "out": random.normal(0, 0.3, (32, 1)).astype(np.float32),
}
x = random.normal(size=(64, 8)).astype(np.float32)
y = np.sin(x.sum(axis=1, keepdims=True))
state = optimiser.init(params)


# %%
def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["in"])
    return jnp.mean((hidden @ params["out"] - y) ** 2)


def step(params, state, x, y):
    loss, slopes = jax.value_and_grad(loss_of)(params, x, y)
    updates, state = optimiser.update(slopes, state, params)
    return optax.apply_updates(params, updates), state, loss


# %% [markdown]
# How arrays are cut, as in the other script.


# %%
def cut(*spec):
    return NamedSharding(mesh, P(*spec))


param_shardings = {"in": cut(None, "model"), "out": cut("model", None)}
state_shardings = optax.tree_utils.tree_map_params(
    optimiser, lambda _, sharding: sharding, state, param_shardings, transform_non_params=lambda _: cut()
)
batch = cut("data")

# %% [markdown]
# The program's text shows the collectives that the partitioner has inserted; the last lines compare with JAX
# itself, on one device.

# %%
with dx.Cluster(partitions=8) as cluster:
    train = dxj.jit(
        step,
        cluster=cluster,
        in_shardings=(param_shardings, state_shardings, batch, batch),
        out_shardings=(param_shardings, state_shardings, cut()),
    )
    text = train.compile(params, state, x, y).as_text()
    print(sorted(set(re.findall(r" (all-\w+|reduce-scatter|collective-permute)\(", text))))
    # -> ['all-reduce']
    alone, alone_state = params, state
    for _ in range(40):
        params, state, loss = train(params, state, x, y)
        alone, alone_state, expected = jax.jit(step)(alone, alone_state, x, y)
    print(f"loss {float(loss):.3f}, with one device {float(expected):.3f}")
    # -> loss 0.162, with one device 0.162
    assert np.allclose(params["in"], alone["in"], atol=1e-4)
