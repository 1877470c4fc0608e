"""The compiler's side of x86-64 under Linux; targets/code.py documents the methods."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.program.image import Image
from distxla.targets.native.code import NativeCode
from distxla.targets.processor import Processor
from distxla.targets.x86_64 import link
from distxla.targets.x86_64.fibers import Fibers
from distxla.targets.x86_64.instructions import Instructions
from distxla.targets.x86_64.tuning import host_processor


class Code(Instructions, Fibers, NativeCode):
    """`targets.code.CodeTarget`."""

    name = "x86_64"

    @property
    def processor(self) -> Processor:
        return host_processor()

    def link(self, objects: Sequence[bytes]) -> Image:
        return link.link(objects)


CODE = Code()
