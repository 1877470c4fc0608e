"""A program without code, for tests of the cache."""

from __future__ import annotations

from distxla.ir.counts import Counts
from distxla.program.artifact import CompiledProgram, Site
from distxla.program.image import Image
from distxla.targets.registry import native_target


def program(image: bytes = b"image", name: str = "m") -> CompiledProgram:
    return CompiledProgram(
        name=name,
        image=Image(image, {"distxla_entry": 0}, (), 0, 0),
        counts=Counts(2, 1),
        sites=(Site(0, "r", "all-reduce", "e", 0, None),),
        target=native_target().name,
    )
