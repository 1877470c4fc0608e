"""A program without code, for tests of the cache."""

from __future__ import annotations

from distxla.ir.counts import Counts
from distxla.ir.shape import Shape
from distxla.program.artifact import CompiledProgram, Site
from distxla.targets.registry import native_target


def program(image: bytes = b"image", name: str = "m") -> CompiledProgram:
    return CompiledProgram(
        name=name,
        image=image,
        symbols={"distxla_entry": 0},
        imports=(),
        imports_offset=0,
        code_bytes=0,
        counts=Counts(2, 1),
        parameters=(),
        result=Shape.tuple(()),
        arena_bytes=0,
        sites=(Site(0, "r", "all-reduce", "e", 0, None),),
        communicators=(),
        timings={},
        target=native_target().name,
    )
