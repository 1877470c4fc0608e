"""The bytes that a communicating instruction moves, for timelines."""

from __future__ import annotations

from collections.abc import Iterable

from distxla.diagnosis.communicating import found, start_of
from distxla.errors import DistxlaError
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.program.artifact import Site
from distxla.text.shapes import parse_shape

OPERANDS = "operands"  # the facet that has their types (collectives/signature.py)


def site_bytes(site: Site, module: Module | None) -> int:
    """Of the arrays that a device gives in one execution, or, as in a recv, takes; of an asynchronous pair both halves
    have the same. 0 where it is not known: of a done that the compiler has made.

    module: as it was compiled, of which the compiler may have merged several instructions into one.
    """
    if not site.completes and (given := _of_text(dict(site.facets).get(OPERANDS, ""))):
        return given
    located = None if module is None else found(module, site.instruction, site.computation)
    if located is None:
        return 0
    taken = located.instruction.shape
    return _of(start_of(located).operands) or _of([taken.elements[0] if taken.elements else taken])  # behind it a token


def _of_text(types: str) -> int:
    try:
        return _of([parse_shape(f"({types})")])
    except DistxlaError:
        return 0


def _of(shapes: Iterable[Shape]) -> int:
    return sum(leaf.byte_size for shape in shapes for leaf in shape.leaves() if leaf.is_array)


__all__ = ["site_bytes"]
