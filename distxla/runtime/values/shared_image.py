"""A program's image in an anonymous file, whose pages all replicas of a host share.

    with SharedImage(program) as shared:
        ...  # replicas call `load_shared(program, shared.source)`

Mappings outlive the file: it can be closed as soon as all replicas have mapped it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from distxla.errors import OutOfMemoryError
from distxla.lazy_dataclass import dataclass
from distxla.machine.memory_files import memory_file, open_descriptor, seal
from distxla.program.artifact import CompiledProgram, DebugTables
from distxla.targets.local_rank import ALONE, LocalRank
from distxla.targets.registry import load_image
from distxla.targets.target import KernelErrorHandler, LoadedImage


@dataclass(frozen=True)
class ImageSource:
    """Location of an image: a process on the host, its file descriptor, and the image's size in bytes."""

    owner: int
    descriptor: int
    size: int


class SharedImage:
    """A program's image in a sealed file, which cannot be changed. OutOfMemoryError if there is no memory for it."""

    def __init__(self, program: CompiledProgram) -> None:
        image = memoryview(program.image.data)
        self._descriptor = -1
        try:
            self._descriptor = memory_file("distxla-image", sealable=True)
            written = 0
            while written < len(image):
                written += os.write(self._descriptor, image[written:])
            seal(self._descriptor, content=True)
            self.source = ImageSource(os.getpid(), self._descriptor, len(image))
        except OSError as error:
            self.close()
            raise OutOfMemoryError(
                f"no memory for the {len(image)} bytes of {program.name}: {error.strerror}"
            ) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SharedImage:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; mappings of it stay. Twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1  # first: the number may be another file's afterwards
        if descriptor >= 0:
            os.close(descriptor)


def without_image(program: CompiledProgram) -> CompiledProgram:
    """The program as replicas get it: its image comes as a file, and the rest is for the driver's reports."""
    image, module = dataclasses.replace(program.image, data=b""), program.module if program.kernels else None
    return dataclasses.replace(program, image=image, module=module, debug=DebugTables())


def load_shared(
    program: CompiledProgram,
    source: ImageSource,
    resolve: Callable[[str], int] | None = None,
    report: KernelErrorHandler | None = None,
    local: LocalRank = ALONE,
) -> LoadedImage:
    """Map the image that a process of this host holds; see `load_image`. ClusterError where it can't be opened."""
    descriptor = open_descriptor(source.owner, source.descriptor, source.size)
    try:
        return load_image(program, resolve, (descriptor, source.size), report, local)
    finally:
        os.close(descriptor)
