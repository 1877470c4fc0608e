"""What a test needs to know of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

P = PartitionSpec


@dataclass(frozen=True)
class Program:
    """A loop around a jitted step: `state, out = step(state, *batch)` for each of some batches; the state is donated.

    axes: of the mesh, names and sizes.  make: the step over a mesh.  state_specs, batch_specs, out_specs: how arrays
    are cut, prefixes of pytrees.  is_manual: whether a `shard_map` is around the step; else it has shardings alone.
    tolerance: the largest difference from JAX, relative to an array's largest number; integers are equal.
    """

    axes: dict[str, int]
    make: Callable[[Any], Callable[..., Any]]
    state: Any
    batches: Sequence[tuple[Any, ...]]
    state_specs: Any
    batch_specs: tuple[Any, ...]
    out_specs: Any
    is_manual: bool
    tolerance: float = 1e-5

    @property
    def devices(self) -> int:
        return prod(self.axes.values())

    def step(self, mesh: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function to jit over a mesh, and the options of `jit`."""
        step = self.make(mesh)
        ins, outs = (self.state_specs, *self.batch_specs), (self.state_specs, self.out_specs)
        if self.is_manual:
            return jax.shard_map(step, mesh=mesh, in_specs=ins, out_specs=outs), {"donate_argnums": 0}

        def over(specs: Any) -> Any:
            return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda leaf: isinstance(leaf, P))

        return step, {"donate_argnums": 0, "in_shardings": over(ins), "out_shardings": over(outs)}

    def run(self, step: Callable[..., Any]) -> dict[str, Any]:
        """The outputs of all steps and the last state, by path. Reads nothing before the last call."""
        state, outs = self.state, []
        for batch in self.batches:
            state, out = step(state, *batch)
            outs.append(out)
        paths = jax.tree_util.tree_flatten_with_path({"outs": outs, "state": state})[0]
        return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in paths}


def filled(shapes: Any, seed: int = 1) -> Any:
    """Arrays of numbers that no release of JAX changes, for a model's variables: kernels by their inputs, scales and
    variances about 1, others about 0, counters 0."""
    draw = np.random.default_rng(seed)

    def fill(path: Any, leaf: Any) -> Any:
        if np.issubdtype(leaf.dtype, np.integer):
            return np.zeros(leaf.shape, leaf.dtype)
        name = path[-1].key
        if name in ("scale", "var"):
            return (1 + 0.1 * draw.random(leaf.shape)).astype(leaf.dtype)
        inputs = prod(leaf.shape[:-1]) if name == "kernel" else 100
        return (draw.standard_normal(leaf.shape) / np.sqrt(inputs)).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, shapes)


def zeros_of(optimizer: Any, params: Any) -> Any:
    """The state that the optimizer begins with, where that is zeros; without a program of JAX for each shape."""
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(optimizer.init, params))


def specs_by_name(variables: Any, rules: dict[str, PartitionSpec]) -> Any:
    """The specification of the first rule that is a part of a variable's path; none cuts the others."""

    def spec(path: Any, _: Any) -> PartitionSpec:
        text = "/".join(str(key.key) for key in path)
        return next((spec for part, spec in rules.items() if part in text), P())

    return jax.tree_util.tree_map_with_path(spec, variables)
