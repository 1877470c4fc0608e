"""What test_link.py shares with other tests."""

from __future__ import annotations

from distxla.ir.counts import Counts
from distxla.program.artifact import CompiledProgram
from distxla.program.image import Image
from distxla.targets.registry import native_target


def program(image: Image) -> CompiledProgram:
    return CompiledProgram(
        name="test",
        image=image,
        counts=Counts(1, 1),
        target=native_target().name,
    )
