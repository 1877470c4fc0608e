"""Values nested in tuples as shapes are, and their leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distxla.ir.shape import Shape


def flat_leaves(value: Any) -> list[Any]:
    """Of nested tuples, depth first."""
    return [leaf for element in value for leaf in flat_leaves(element)] if isinstance(value, tuple) else [value]


def nested(shape: Shape, leaves: Iterator[Any]) -> Any:
    """A value of this shape of its next leaves."""
    return next(leaves) if shape.elements is None else tuple(nested(element, leaves) for element in shape.elements)
