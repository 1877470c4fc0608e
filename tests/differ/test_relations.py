"""What the numbers of devices say of the whole: each relation, of arrays that have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.differ.device_groups import Devices
from distxla.differ.relations import Relation, relation
from distxla.differ.tolerance import Allowed, allowed

Array = np.ndarray[Any, Any]
MESH = Devices(4, (("data", 2), ("model", 2)))
ROW = Devices(4, (("x", 4),))
WHOLE = np.random.default_rng(1).normal(size=(8, 12)).astype("f")
LIMIT = allowed([WHOLE])


def found(values: list[Array], devices: Devices = ROW, whole: Array = WHOLE, limit: Allowed = LIMIT) -> Relation | None:
    return relation(values, whole, devices, limit)


def text(values: list[Array], devices: Devices = ROW, whole: Array = WHOLE) -> str | None:
    one = found(values, devices, whole)
    return None if one is None else one.text


def summands(count: int, seed: int = 2) -> list[Array]:
    """Of the whole."""
    parts = [np.random.default_rng(seed + k).normal(size=WHOLE.shape).astype("f") for k in range(count - 1)]
    return [*parts, WHOLE - np.sum(parts, axis=0)] if parts else [WHOLE]


@pytest.mark.parametrize(
    ("values", "devices", "wanted"),
    [
        ([WHOLE] * 4, ROW, "the same"),
        (np.split(WHOLE, 4, 0), ROW, "a shard: dimension 0 over 'x'"),
        (np.split(WHOLE, 4, 1), ROW, "a shard: dimension 1 over 'x'"),
        (np.split(WHOLE, 4, 1)[::-1], ROW, "shards in another order: dimension 1 over 'x'"),
        ([np.split(WHOLE, 2, 0)[d // 2] for d in range(4)], MESH, "a shard: dimension 0 over 'data'"),
        ([np.split(WHOLE, 2, 0)[d % 2] for d in range(4)], MESH, "a shard: dimension 0 over 'model'"),
        (np.split(WHOLE, 4, 0), MESH, "a shard: dimension 0 over 'data','model'"),
        (
            [np.split(np.split(WHOLE, 2, 0)[d // 2], 2, 1)[d % 2] for d in range(4)],
            MESH,
            "a shard: dimension 0 over 'data', dimension 1 over 'model'",
        ),
        ([WHOLE[:, 2 * d : 2 * d + 6] for d in range(4)], ROW, "a shard with a halo: dimension 1 over 'x'"),
        ([WHOLE[:2]] * 4, ROW, "the same part of dimension 0 everywhere"),
        (summands(4), ROW, "partial sums over 'x'"),
        ([summands(2)[d % 2] for d in range(4)], MESH, "partial sums over 'model'"),
        ([summands(2)[d // 2] for d in range(4)], MESH, "partial sums over 'data'"),
        (
            [np.split(summands(2)[d % 2], 2, 0)[d // 2] for d in range(4)],
            MESH,
            "partial sums over 'model', each a shard: dimension 0 over 'data'",
        ),
        ([4 * part for part in summands(4)], ROW, "local means over 'x'"),
        ([np.where(np.arange(12) % 4 == d, WHOLE, -9) for d in range(4)], ROW, "local maxima over 'x'"),
        ([np.where(np.arange(12) % 4 == d, WHOLE, 9) for d in range(4)], ROW, "local minima over 'x'"),
        ([4 * WHOLE] * 4, ROW, "4 times the whole"),
        ([WHOLE / 2] * 4, ROW, "0.5 times the whole"),
        ([WHOLE + 1] * 4, ROW, None),
        ([WHOLE, WHOLE, WHOLE, WHOLE[::-1]], ROW, None),
    ],
)
def test_each_relation(values: list[Array], devices: Devices, wanted: str | None) -> None:
    values = [np.ascontiguousarray(value, np.float32) for value in values]
    assert text(values, devices) == wanted


def test_padding_of_the_last_shard_may_be_anything() -> None:
    padded = np.concatenate([WHOLE, np.full((2, 12), 99, "f")])
    one = relation(np.split(padded, 2), WHOLE, Devices(2, (("x", 2),)), LIMIT)
    assert one is not None
    assert one.text == "a shard: dimension 0 over 'x'"
    assert one.offsets == ((0, 0), (5, 0))


def test_which_relations_have_everything() -> None:
    halo = [WHOLE[:, 2 * d : 2 * d + 6] for d in range(4)]
    for values in ([WHOLE] * 4, np.split(WHOLE, 4), halo):
        one = found(values)
        assert one is not None
        assert one.is_complete
        assert not one.is_partial
    for values in (np.split(WHOLE, 4)[::-1], [WHOLE[:2]] * 4, summands(4)):
        one = found(values)
        assert one is not None
        assert not one.is_complete


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, bool])
def test_other_types(dtype: Any) -> None:
    numbers = np.arange(24).reshape(4, 6)
    whole = numbers % 5 > 1 if dtype is bool else numbers.astype(dtype)
    limit = allowed([whole])
    assert text_of([whole] * 4, whole, limit) == "the same"
    assert text_of(np.split(whole, 4), whole, limit) == "a shard: dimension 0 over 'x'"
    parts = [np.where(np.arange(6) % 4 == d, whole, np.zeros_like(whole)).astype(dtype) for d in range(4)]
    # keys of random numbers are no sums; of predicates the maximum is "or"
    wanted = {np.int32: "partial sums over 'x'", np.uint32: None, bool: "local maxima over 'x'"}[dtype]
    assert text_of(parts, whole, limit) == wanted


def text_of(values: list[Array], whole: Array, limit: Allowed) -> str | None:
    one = relation(values, whole, ROW, limit)
    return None if one is None else one.text


def test_a_limit_decides() -> None:
    near = [WHOLE * np.float32(1 + 1e-3)] * 4
    assert found(near) is None
    one = found(near, limit=Allowed(0.1))
    assert one is not None
    assert one.kind == "same"


@given(st.permutations(range(4)), st.integers(0, 1))
def test_orders_of_shards(order: list[int], dimension: int) -> None:
    one = found([np.split(WHOLE, 4, dimension)[k] for k in order])
    assert one is not None
    assert one.kind == ("shard" if order == [0, 1, 2, 3] else "permutation")
    assert one.offsets is not None
    size = WHOLE.shape[dimension] // 4
    assert [offset[dimension] // size for offset in one.offsets] == order


@given(st.lists(st.lists(st.floats(-4, 4, width=32), min_size=4, max_size=4), min_size=4, max_size=4))
def test_what_are_sums_is_found_as_such_or_as_the_same(parts: list[list[float]]) -> None:
    values = [np.array(part, np.float32) for part in parts]
    whole = np.sum(values, axis=0, dtype=np.float64).astype(np.float32)
    assert relation(values, whole, ROW, Allowed(1e-4)) is not None
