"""Sums and products of two floats as a float and its rounding error; all exact unless something overflows."""

from __future__ import annotations

from distxla.compiler.lower.scalar_expression import ScalarExpr

DoubleDouble = tuple[ScalarExpr, ScalarExpr]


def two_sum(a: ScalarExpr, b: ScalarExpr) -> DoubleDouble:
    """a + b and its error, for any order of magnitude (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def ordered_sum(a: ScalarExpr, b: ScalarExpr) -> DoubleDouble:
    """a + b and its error, for |a| >= |b| or a = 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)


def two_product(a: ScalarExpr, b: ScalarExpr | float) -> DoubleDouble:
    """a * b and its error."""
    product = a * b
    return product, a.fma(b, -product)
