"""Views say where elements lie: what NumPy does to arrays of numbers, they do to the numbers' places."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.ir.counts import Counts
from distxla.ir.element_type import F32
from distxla.proofs.coordinates import coordinates, lies_at
from distxla.proofs.relations import views
from distxla.proofs.relations.lines import NOWHERE, Pool, is_nowhere
from distxla.proofs.relations.relation import NoRule, Relation
from distxla.proofs.relations.space import Space, as_fraction
from distxla.proofs.relations.terms import Terms

Array = np.ndarray[Any, Any]
DEVICES = 4


def space_of(devices: int, pool: Pool, terms: Terms) -> Space:
    return Space(pool, terms, Counts(1, devices))


def cut(space: Space, dims: tuple[int, ...], dim: int) -> Relation:
    """A whole array that is cut along one dimension over the devices."""
    whole = Space(space.pool, space.terms, Counts(1, 1)).whole(space.terms.term("x", F32, dims))
    n = dims[dim] // space.devices
    rows = np.arange(space.devices)[:, None] * n + np.arange(n)
    axes = tuple(((d, space.lines(rows) if d == dim else space.range(size)),) for d, size in enumerate(dims))
    return Relation(whole.term, axes, tuple(n if d == dim else size for d, size in enumerate(dims)))


def elements(relation: Relation, array: Array, device: int) -> Array:
    """What the relation says that a device has; array: the value of its term."""
    found = np.zeros(relation.dims)
    for place in np.ndindex(relation.dims):
        index = [sum(int(lines.rows[device, 0 if d < 0 else place[d]]) for d, lines in axis) for axis in relation.axes]
        found[place] = 0 if is_nowhere(np.array(index)).any() else array[tuple(index)]
    return found


def assert_is(relation: Relation, array: Array, expected: list[Array]) -> None:
    for device, wanted in enumerate(expected):
        np.testing.assert_array_equal(elements(relation, array, device), wanted)


ARRAY = np.arange(8 * 6 * 4, dtype=float).reshape(8, 6, 4) + 1


@st.composite
def sizes(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """Dimension sizes of so many elements."""
    found = []
    while count > 1:
        n = draw(st.sampled_from([k for k in range(1, count + 1) if count % k == 0]))
        found.append(n)
        count //= n
        if len(found) > 4:
            break
    return (*found, count)


@given(st.data())
def test_reshapes_of_a_cut_array_are_numpys_or_refused(data: st.DataObject) -> None:
    space = space_of(2, Pool(), Terms())
    dim = data.draw(st.sampled_from([0, 1, 2]))
    relation = cut(space, ARRAY.shape, dim)
    parts = np.split(ARRAY, 2, axis=dim)
    new = data.draw(sizes(prod(relation.dims)))
    try:
        found = views.reshaped(space, relation, new)
    except NoRule:
        return
    assert_is(found, ARRAY, [part.reshape(new) for part in parts])


@given(st.data())
def test_slices_transposes_and_joins_are_numpys(data: st.DataObject) -> None:
    space = space_of(2, Pool(), Terms())
    relation, parts = cut(space, ARRAY.shape, 0), np.split(ARRAY, 2)
    for _ in range(data.draw(st.integers(1, 4))):
        dim = data.draw(st.integers(0, 2))
        what = data.draw(st.sampled_from(["slice", "transpose", "join", "reverse", "pad", "rows"]))
        n = relation.dims[dim]
        if what == "slice":
            start = data.draw(st.integers(0, n - 1))
            relation = views.sliced(space, relation, dim, start, n)
            parts = [part.take(range(start, n), axis=dim) for part in parts]
        elif what == "transpose":
            order = data.draw(st.permutations(range(3)))
            relation, parts = views.transposed(relation, order), [part.transpose(order) for part in parts]
        elif what == "join" and n < 16:
            try:
                relation = views.joined(space, [relation, relation], dim)
            except NoRule:
                continue
            parts = [np.concatenate([part, part], axis=dim) for part in parts]
        elif what == "reverse":
            relation = views.taken(space, relation, dim, np.arange(n)[::-1], ("reverse", n))
            parts = [np.flip(part, dim) for part in parts]
        elif what == "pad":
            relation = views.taken(space, relation, dim, np.array([NOWHERE, *range(n)]), ("pad", n))
            parts = [np.concatenate([np.zeros_like(part.take([0], axis=dim)), part], axis=dim) for part in parts]
        elif n > 1:
            relation = views.rows_of_devices(space, relation, dim, np.array([0, 1]), n - 1)
            parts = [part.take(range(k, k + n - 1), axis=dim) for k, part in enumerate(parts)]
    assert_is(relation, ARRAY, parts)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_coordinates_are_the_places_in_the_whole_array(dim: int) -> None:
    pool, terms = Pool(), Terms()
    space = space_of(2, pool, terms)
    own = cut(space, ARRAY.shape, dim)
    whole = Space(pool, terms, Counts(1, 1)).whole(own.term)
    found = coordinates(own, whole, 2)
    assert found is not None
    n = own.dims[dim]
    assert found[dim] is not None
    np.testing.assert_array_equal(found[dim], np.arange(2)[:, None] * n + np.arange(n))
    firsts = np.array([[n * device if d == dim else 0 for d in range(3)] for device in range(2)])
    assert lies_at(own, whole, firsts)
    assert not lies_at(own, whole, firsts[::-1].copy())


def test_coordinates_of_split_dimensions() -> None:
    """A dimension of 8 heads of 4 elements, cut over the heads."""
    pool, terms = Pool(), Terms()
    space, one = space_of(4, pool, terms), Space(pool, terms, Counts(1, 1))
    own = cut(space, (3, 32), 1)
    whole = one.whole(own.term)
    heads = views.reshaped(space, own, (3, 2, 4), ((3, 32), (3, 8, 4)))
    of_whole = views.reshaped(one, whole, (3, 8, 4))
    found = coordinates(heads, of_whole, 4)
    assert found is not None
    np.testing.assert_array_equal(found[1], np.arange(8).reshape(4, 2))
    np.testing.assert_array_equal(found[2], np.broadcast_to(np.arange(4), (4, 4)))
    again = views.reshaped(space, heads, (3, 8), ((3, 8, 4), (3, 32)))
    assert again.axes == own.axes


def test_terms_of_different_places_are_no_coordinates() -> None:
    pool, terms = Pool(), Terms()
    space, one = space_of(2, pool, terms), Space(pool, terms, Counts(1, 1))
    own = cut(space, (4, 6), 0)
    half = views.sliced(one, one.whole(own.term), 1, 0, 3)
    assert coordinates(views.sliced(space, own, 1, 1, 4), half, 2) is None
    assert coordinates(own, one.whole(terms.term("y", F32, (4, 6))), 2) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_constants_are_the_fractions_that_they_round(dtype: Any) -> None:
    for numerator in (-7, 1, 2, 3):
        for denominator in (1, 3, 8, 10, 24):
            fraction = Fraction(numerator, denominator)
            assert as_fraction(np.array(float(fraction)).astype(dtype)[()]) == fraction


@given(st.floats(min_value=2.0**-100, max_value=2.0**100, width=32))
def test_a_fraction_rounds_to_its_constant(value: float) -> None:
    assert np.float32(float(as_fraction(np.float32(value)))) == np.float32(value)
    assert as_fraction(np.float32(value)) != as_fraction(np.nextafter(np.float32(value), np.float32(np.inf)))
