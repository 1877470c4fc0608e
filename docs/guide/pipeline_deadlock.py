"""A pipeline that deadlocks, and the correction."""

# %% [markdown]
# # A deadlock in a pipeline of one's own
#
# Four stages, one a device; a microbatch goes from stage to stage. The first try hands it on inside a `cond`,
# "since the first stage receives nothing": then stage 0 does not reach the permute that its neighbour waits in.
# XLA's CPU backend hangs in this program for 40 seconds and then aborts the process. `python pipeline_deadlock.py`.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import distxla as dx
import distxla.jax as dxj

STAGES, MICROBATCHES = 4, 6
mesh = dxj.make_mesh((STAGES,), ("stage",))
NEXT = [(stage, stage + 1) for stage in range(STAGES - 1)]
weights = np.linspace(0.5, 1.5, STAGES, dtype=np.float32).reshape(STAGES, 1, 1) * np.eye(3, dtype=np.float32)
batches = np.arange(MICROBATCHES * 6, dtype=np.float32).reshape(MICROBATCHES, 2, 3) / 10


def pipeline(hand_on):
    """The function of all stages; hand_on(value, stage) gives a stage what the one before it has made."""

    def stages(weight, batches):
        stage = jax.lax.axis_index("stage")

        def tick(made, time):
            received = hand_on(made, stage)
            fresh = batches[jnp.minimum(time, MICROBATCHES - 1)]
            made = jnp.tanh(jnp.where(stage == 0, fresh, received) @ weight[0])
            return made, made

        _, outs = jax.lax.scan(tick, jnp.zeros(batches.shape[1:]), jnp.arange(MICROBATCHES + STAGES - 1))
        return outs[None, STAGES - 1 :]

    specs = {"in_specs": (P("stage"), P()), "out_specs": P("stage")}
    return jax.shard_map(stages, mesh=mesh, check_vma=False, **specs)


# %% [markdown]
# The first try. `check` finds the deadlock before anything runs, names the line, and says what to change.


# %%
def only_later_stages(value, stage):
    def receive(value):
        return jax.lax.ppermute(value, "stage", NEXT)

    return jax.lax.cond(stage > 0, receive, lambda value: value, value)


cluster = dx.Cluster(partitions=STAGES).start()
stuck = dxj.jit(pipeline(only_later_stages), cluster=cluster)
verdict = stuck.compile(weights, batches).check()
print(verdict.outcome)
# -> Outcome.DEADLOCK
print(verdict.diagnosis)
# -> deadlock: device 1 waits in ppermute… for device 0, whose program has ended
# ->   device 0 has ended
# ->   device 1 waits in ppermute… for device 0: collective-permute…pipeline_deadlock.py:52:15 in only_later_stages…
# ->   device 2 …
# ->   device 3 …
# ->   3 of 4 devices can never end
# ->   blocked behind that: devices 2, 3
# ->   they diverge at while…
# ->   hint: device 0 skipped ppermute…: either all members of its group must take that branch or none…

# %% [markdown]
# Run nevertheless, it raises an error within a second, with the state of every device when it stopped. It has
# the same diagnosis, and `error.diagnosis.page()` is a page with the timelines of all devices.

# %%
try:
    np.asarray(stuck(weights, batches))
except dx.DeadlockError as error:
    print(f"{type(error).__name__}: {error.diagnosis.summary}")
# -> DeadlockError: device 1 waits in ppermute… for device 0, whose program has ended


# %% [markdown]
# The second try: every stage takes part in the permute, and the first one ignores what it gets. The last stage's
# results are those of all layers one after the other.


# %%
def all_stages(value, stage):
    return jax.lax.ppermute(value, "stage", NEXT)


runs = dxj.jit(pipeline(all_stages), cluster=cluster)
print(runs.compile(weights, batches).check().outcome)
# -> Outcome.SAFE
outs = np.asarray(runs(weights, batches))[-1]
expected = batches
for weight in weights:
    expected = np.tanh(expected @ weight)
print("largest difference:", "none" if np.allclose(outs, expected, atol=1e-6) else np.abs(outs - expected).max())
# -> largest difference: none
cluster.close()
