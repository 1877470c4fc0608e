"""The note on layouts that count less here than on the device that a dump is from."""

from __future__ import annotations

from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.text.shapes import print_shape


def ignored_tiles(module: Module) -> str | None:
    """The treatment of tiles, naming the first shape that has some; None where none has.

    Tiles say where a device keeps elements. Arrays here are row-major inside of a program and logical where they enter
    and leave it, so tiles count only where a bitcast reads bytes (ir/tiles.py). A reader of another device's dump may
    want to know.
    """
    found: dict[Shape, None] = {}
    for computation in module.computations:
        for instruction in computation:
            for leaf in instruction.shape.leaves():
                if leaf.layout is not None and leaf.layout.tiles:
                    found[leaf] = None
    if not found:
        return None
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"the tiles of {print_shape(next(iter(found)))}{others} count in bitcasts only: arrays are row-major here"
