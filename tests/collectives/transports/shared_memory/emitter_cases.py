"""What test_emitter.py shares with other tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distxla.ir.element_type import PRED
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.all_gather import AllGather
from distxla.ops.all_reduce import AllReduce
from distxla.ops.all_to_all import AllToAll
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.reduce_scatter import ReduceScatter
from tests.collectives.devices import module_of, reduction

Array = np.ndarray[Any, Any]

REDUCERS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "xor": np.bitwise_xor,
}


@dataclass(frozen=True)
class Case:
    """One instruction; `reduction` where it reduces."""

    op: Any
    operands: tuple[Shape, ...]
    result: Shape
    reducer: str = "add"

    @property
    def module(self) -> Module:
        return module_of(self.op, self.operands, self.result, [reduction(self.reducer, self.operands[0])])

    @property
    def results(self) -> list[Shape]:
        return list(self.result.leaves())


def case_of(op: Any, operands: Sequence[Shape], size: int, reducer: str = "add") -> Case:
    return Case(op, tuple(operands), op.result_shape(tuple(operands), size), reducer)


def values(shape: Shape, seed: int) -> Array:
    """Numbers of both signs; bits that NumPy and the generated code agree on."""
    rng = np.random.default_rng(seed)
    kind = shape.dtype
    if kind is PRED:
        return rng.random(shape.dims) < 0.5
    if kind.is_integer:
        low, high = (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1)) if kind.is_signed else (0, 2**kind.bits)
        drawn = rng.integers(low, high, shape.dims, dtype=np.int64 if kind.is_signed else np.uint64)
        return np.asarray(drawn).astype(kind.dtype)
    drawn = rng.standard_normal(shape.dims)
    if kind.is_complex:
        return (drawn + 1j * rng.standard_normal(shape.dims)).astype(kind.dtype)
    if kind.name == "f8e8m0fnu":
        drawn = np.abs(drawn)
    return np.asarray(drawn).astype(kind.dtype)


def formula(case: Case, group: list[int], sent: list[list[Array]]) -> list[list[Array]]:
    """What each member must get, from what each member of the group sent."""
    op, size = case.op, len(group)

    def reduced(i: int) -> Array:
        return functools.reduce(lambda a, b: REDUCERS[case.reducer](a, b).astype(a.dtype), [mine[i] for mine in sent])

    if isinstance(op, AllReduce):
        return [[reduced(i) for i in range(len(case.operands))]] * size
    if isinstance(op, AllGather):
        whole = [np.concatenate([mine[i] for mine in sent], op.dimension) for i in range(len(case.operands))]
        return [whole] * size
    if isinstance(op, ReduceScatter):
        parts = [np.split(reduced(i), size, op.dimension) for i in range(len(case.operands))]
        return [[p[m] for p in parts] for m in range(size)]
    if isinstance(op, CollectiveBroadcast):
        return [sent[0]] * size
    assert isinstance(op, AllToAll)
    if op.is_tuple_form:
        return [[mine[m] for mine in sent] for m in range(size)]
    pieces = [np.split(mine[0], size, op.dimension) for mine in sent]
    return [[np.concatenate([p[m] for p in pieces], op.dimension)] for m in range(size)]


def permuted(case: Case, replicas: int, partitions: int, sent: list[list[Array]]) -> list[list[Array]]:
    op = case.op
    received = [[np.zeros_like(a) for a in mine] for mine in sent]
    for device in range(replicas * partitions):
        r, p = divmod(device, partitions)
        for source, target in op.source_target_pairs:
            if (r if op.channel_id is None else p) == target:
                there = source * partitions + p if op.channel_id is None else r * partitions + source
                received[device] = sent[there]
    return received
