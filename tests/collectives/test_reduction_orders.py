"""The orders of combination: rank, tree and ring against folds written out here, compiled and by the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.compiler.cache_key import program_key
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import ArgumentError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.rewrites.reduction_order import ReductionOrder
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.collectives.executors import EXECUTORS, run_module
from tests.samples import examples

Array = np.ndarray[Any, Any]
Reducer = Callable[[Any, Any], Any]
ORDERS = ("rank", "tree", "ring")


def rank(f: Reducer, values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = f(total, value)
    return total


def tree(f: Reducer, values: Sequence[Any]) -> Any:
    """The largest power of two below the count on the left, the rest on the right."""
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values) - 1).bit_length() - 1
    return f(tree(f, values[:half]), tree(f, values[half:]))


def one_element(order: str, f: Reducer, values: Sequence[Any], chunk: int) -> Any:
    if order == "ring":
        return rank(f, [values[(chunk + 1 + k) % len(values)] for k in range(len(values))])
    return (tree if order == "tree" else rank)(f, values)


def all_reduced(order: str, f: Reducer, arrays: Sequence[Array]) -> Array:
    result = np.empty_like(arrays[0])
    each = -(-result.size // len(arrays)) or 1
    for flat, index in enumerate(np.ndindex(result.shape)):
        result[index] = one_element(order, f, [a[index] for a in arrays], flat // each)
    return result


def scattered(order: str, f: Reducer, arrays: Sequence[Array], dimension: int, member: int) -> Array:
    parts = [np.split(a, len(arrays), dimension)[member] for a in arrays]
    result = np.empty_like(parts[0])
    for index in np.ndindex(result.shape):
        result[index] = one_element(order, f, [p[index] for p in parts], member)
    return result


TEXT = """HloModule orders

combine {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] OPCODE(a, b)
}

ENTRY main {
  p = f32[DIMS] parameter(0)
  q = f32[WHOLE] parameter(1)
  all = f32[DIMS] all-reduce(p), to_apply=combine, GROUPS
  scatter = f32[DIMS] reduce-scatter(q), to_apply=combine, dimensions={LAST}, GROUPS
  ROOT t = (f32[DIMS], f32[DIMS]) tuple(all, scatter)
}
"""
OPCODES: dict[str, Reducer] = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}


def text(opcode: str, dims: Sequence[int], size: int, groups: str = "replica_groups={}") -> str:
    """An all-reduce of `dims`, and a reduce-scatter of `size` parts like that along the last dimension."""
    whole = (*dims[:-1], dims[-1] * size)
    found = TEXT.replace("OPCODE", opcode).replace("GROUPS", groups).replace("LAST", str(len(dims) - 1))
    return found.replace("DIMS", ",".join(map(str, dims))).replace("WHOLE", ",".join(map(str, whole)))


def values(rng: np.random.Generator, dims: Sequence[int], kind: Any) -> Array:
    """Magnitudes far apart, so that every order rounds otherwise."""
    return (rng.normal(size=dims) * 10.0 ** rng.integers(-4, 4, dims)).astype(kind)


def check(order: str, opcode: str, counts: tuple[int, int], dims: tuple[int, ...], groups: list[list[int]]) -> None:
    """Groups are written out; all-reduce of `dims`, reduce-scatter of dims with the last one times the group size."""
    size, dimension = len(groups[0]), len(dims) - 1
    whole = (*dims[:-1], dims[-1] * size)
    written = ",".join("{" + ",".join(map(str, g)) + "}" for g in groups)
    channel = "" if counts[1] == 1 else ", channel_id=1, use_global_device_ids=true"
    module = text(opcode, dims, size, f"replica_groups={{{written}}}{channel}")
    rng = np.random.default_rng(prod(dims) + size)
    given = [[values(rng, dims, np.float32), values(rng, whole, np.float32)] for _ in range(counts[0] * counts[1])]
    parsed = ReductionOrder(order).run(parse_module(module))
    for executor in EXECUTORS:
        outs = run_module(executor, parsed, given, *counts)
        for group in groups:
            reduced = all_reduced(order, OPCODES[opcode], [given[d][0] for d in group])
            for member, device in enumerate(group):
                part = scattered(order, OPCODES[opcode], [given[d][1] for d in group], dimension, member)
                assert outs[device][0].tobytes() == reduced.tobytes(), (executor, device)
                assert outs[device][1].tobytes() == part.tobytes(), (executor, device)


@pytest.mark.sampled(one_in=16)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("devices", [1, 2, 3, 7, 8, 9, 16, 21, 37])
def test_group_sizes(order: str, devices: int) -> None:
    check(order, "subtract", (devices, 1), (3, 2), [list(range(devices))[::-1]])


@pytest.mark.parametrize("order", ORDERS)
def test_flattened_ids(order: str) -> None:
    check(order, "add", (2, 3), (11,), [[5, 0, 2], [1, 4, 3]])


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("order", ORDERS)
def test_large_operands_whose_work_is_shared(order: str) -> None:
    devices, size = 5, 100_003
    module = text("add", (size,), devices)
    rng = np.random.default_rng(1)
    given = [[values(rng, (size,), np.float32), values(rng, (size * devices,), np.float32)] for _ in range(devices)]
    parsed = ReductionOrder(order).run(parse_module(module))
    reference, compiled = (run_module(executor, parsed, given, devices) for executor in EXECUTORS)
    for mine, theirs in zip(reference, compiled, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.tobytes() == b.tobytes()
    some = rng.integers(0, size, 50)
    each = -(-size // devices)
    for e in some:
        expected = one_element(order, np.add, [row[0][e] for row in given], int(e) // each)
        assert compiled[0][0][e].tobytes() == np.float32(expected).tobytes()


@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(ORDERS),
    st.sampled_from(sorted(OPCODES)),
    st.integers(1, 5),
    st.lists(st.integers(0, 7), min_size=1),
)
def test_random_shapes(order: str, opcode: str, devices: int, dims: list[int]) -> None:
    check(order, opcode, (devices, 1), tuple(dims[:3]), [list(range(devices))])


def _module(attribute: str = "", devices: int = 8) -> Module:
    return parse_module(text("add", (33,), devices, f"replica_groups={{}}{attribute}"))


def test_orders_differ_in_bits_and_in_the_key_of_the_cache() -> None:
    rng = np.random.default_rng(5)
    given = [[values(rng, (33,), np.float32), values(rng, (264,), np.float32)] for _ in range(8)]
    modules = [ReductionOrder(order).run(_module()) for order in ORDERS]
    assert len({program_key(module, Counts(8, 1)) for module in modules}) == 3
    assert program_key(modules[0], Counts(8, 1)) == program_key(_module(), Counts(8, 1))
    assert len({run_module("compiled", module, given, 8)[0][0].tobytes() for module in modules}) == 3


def test_the_order_is_an_attribute_of_the_text() -> None:
    module = _module(", reduction_order=tree")
    assert "reduction_order=tree" in print_module(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)
    assert "reduction_order=ring" in print_module(ReductionOrder("ring").run(module))
    assert "reduction_order" not in print_module(ReductionOrder("rank").run(module))
    assert ReductionOrder().run(module) is module


def test_what_is_no_order_is_refused() -> None:
    with pytest.raises(ArgumentError, match="reduction order 'random': expected rank, tree, ring"):
        ReductionOrder("random")
    with pytest.raises(VerificationError, match=r"all-reduce\.C11"):
        verify_module(_module(", reduction_order=random"))
