"""Index arithmetic: what is taken apart and put together again is itself."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from distxla.compiler.lower.arrays import linear_index
from distxla.compiler.lower.emitter import ScalarEmitter
from distxla.compiler.lower.index import Atom, IndexExpression


def emitter() -> ScalarEmitter:
    function = ir.Function(ir.Module("test"), ir.FunctionType(ir.VoidType(), [ir.IntType(64)]), "f")
    return ScalarEmitter(ir.IRBuilder(function.append_basic_block("entry")))


def value(index: IndexExpression | int, numbers: dict[Atom, int]) -> int:
    """What an expression gives for numbers in place of its atoms."""
    if isinstance(index, int):
        return index
    total = index.offset
    for atom, coefficient in index.terms:
        if atom.dividend is not None:
            total += coefficient * (value(atom.dividend, numbers) // atom.divisor)
        else:
            total += coefficient * numbers[atom]
    return total


@pytest.mark.parametrize("dims", [(4, 6), (2, 3, 4), (5, 1, 7), (12,)])
def test_delinearised_is_linear_again(dims: tuple[int, ...]) -> None:
    emit = emitter()
    linear = emit.wrap_index(emit.builder.function.args[0], 0, prod(dims) - 1)
    index, rest = [], linear
    for size in reversed(dims):
        index.append(rest % size)
        rest = rest // size
    again = linear_index(emit, dims, index[::-1])
    assert again.terms == linear.terms
    assert again.offset == 0


def test_merging_dimensions_needs_no_division() -> None:
    emit = emitter()
    argument = emit.builder.function.args[0]
    a, b = emit.wrap_index(argument, 0, 6), emit.wrap_index(argument, 0, 4)
    merged = a * 5 + b
    assert (merged // 5).terms == a.terms
    assert (merged % 5).terms == b.terms


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(sizes, st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 9))
def test_division_is_division(dims: list[int], divisors: list[int], offset: int) -> None:
    emit = emitter()
    argument = emit.builder.function.args[0]
    indices = [emit.wrap_index(argument, 0, d - 1) for d in dims]
    atoms = [i.terms[0][0] for i in indices]
    for numbers in product(*(range(d) for d in dims)):
        known = dict(zip(atoms, numbers))
        expression = linear_index(emit, dims, indices) + offset
        wanted = value(expression, known)
        for divisor in divisors:
            quotient, remainder = expression // divisor, expression % divisor
            assert (value(quotient, known), value(remainder, known)) == divmod(wanted, divisor)
            assert quotient.low <= value(quotient, known) <= quotient.high
            assert remainder.low <= value(remainder, known) <= remainder.high
            expression, wanted = quotient * 3 + remainder, wanted // divisor * 3 + wanted % divisor
