"""Sums and products of two floats as a float and what its rounding lost; all exact unless something overflows."""

from __future__ import annotations

from distxla.compiler.lower.scalar_expression import Lane

Pair = tuple[Lane, Lane]


def two_sum(a: Lane, b: Lane) -> Pair:
    """a + b, whichever is larger."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def ordered_sum(a: Lane, b: Lane) -> Pair:
    """a + b for |a| >= |b| or a = 0."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Lane, b: Lane | float) -> Pair:
    """a * b."""
    product = a * b
    return product, a.fma(b, -product)
