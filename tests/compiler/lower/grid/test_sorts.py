"""Sorting on a grid gives the processor's order, whatever the comparator."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.ir.element_type import element_type
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import Array, both
from tests.compiler.lower.grid.sorts_cases import COMPARATORS, WITHOUT_KEYS, sort_text
from tests.ops.case import array as shape_of
from tests.ops.case import sample
from tests.samples import in_turn


def agree(text: str, arguments: list[Array], launches: int) -> None:
    program, wanted, got = both(parse_module(text), arguments)
    assert [len(kernel.launches) for kernel in program.grid.launched] == [launches]
    assert [one.tobytes() for one in wanted] == [other.tobytes() for other in got]


def values(kind: str, dims: tuple[int, ...]) -> list[Array]:
    """With equal elements, NaNs and zeros of both signs; numbers to tell equal elements apart."""
    count = int(np.prod(dims))
    found = np.random.default_rng(count).permutation(np.resize(sample(shape_of(kind, 150), 3), count))
    return [found.reshape(dims), np.arange(count, dtype=np.int32).reshape(dims) // 2]


# lines of one run, of several, with a rest; along any dimension
SHAPES = [((3, 50), 1, 2), ((65,), 0, 4), ((2, 300, 3), 1, 6), ((1, 1030), 1, 8)]
KINDS = ["f32", "bf16", "f64", "s32", "u8", "pred", "s64", "f8e5m2"]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize(("comparator", "kind", "shape"), in_turn(COMPARATORS, KINDS, SHAPES))
def test_keys(comparator: str, kind: str, shape: tuple[tuple[int, ...], int, int]) -> None:
    dims, axis, launches = shape
    agree(sort_text(COMPARATORS[comparator], kind, dims, axis), values(kind, dims), launches)


MERGED = [((2, 20), 1, 2), ((2, 64), 1, 5), ((70,), 0, 9), ((2, 200, 2), 1, 12)]


@pytest.mark.sampled(one_in=27, first=("not before-shape5-f32",))
@pytest.mark.parametrize(("comparator", "shape", "kind"), in_turn(WITHOUT_KEYS, MERGED, ["f32", "s32"]))
def test_comparators_without_keys(comparator: str, shape: tuple[tuple[int, ...], int, int], kind: str) -> None:
    """Those that contradict themselves, too, which NaNs do to some others."""
    dims, axis, launches = shape
    agree(sort_text(WITHOUT_KEYS[comparator], kind, dims, axis), values(kind, dims), launches)


BEST = [(40, 7, 2), (300, 5, 6), (300, 300, 6), (130, 100, 5), (9, 0, 0)]


@pytest.mark.sampled(one_in=15)
@pytest.mark.parametrize(
    ("kind", "best", "largest"), in_turn(["f32", "f8e4m3fn", "s8", "u32", "pred"], BEST, ["true", "false"])
)
def test_top_k(kind: str, best: tuple[int, int, int], largest: str) -> None:
    size, k, launches = best
    text = f"""HloModule best
ENTRY main {{
  x = {kind}[4,{size}] parameter(0)
  ROOT r = ({kind}[4,{k}], s32[4,{k}]) topk(x), k={k}, largest={largest}
}}
"""
    found = values(kind, (4, size))[0]
    assert found.dtype == element_type(kind).dtype
    if launches:
        agree(text, [found], launches)
    else:
        assert [a.shape for a in both(parse_module(text), [found])[2]] == [(4, 0), (4, 0)]
