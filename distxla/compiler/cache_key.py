"""The cache key of a compiled program: a hash of everything that it depends on.

That is the module's text without metadata, the bytes of its large constants, the device counts, the target, the CPU and
its features, LLVM's version and the source of distxla itself.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from distxla import clock
from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.machine.packages import installed_version
from distxla.ops.constant import Constant
from distxla.ops.custom_calls.user import declarations, user_targets
from distxla.program.options import CompileOptions
from distxla.targets.registry import host, native_target, target_named
from distxla.text.printer import print_module

_PRINTED_ELEMENTS: Final = 64  # of a constant
SETTLED_NS: Final = 2_000_000_000  # two changes of a file within a tick of the kernel's clock have the same time


def program_key(module: Module, counts: Counts, options: CompileOptions | None = None) -> str:
    """The hash of everything that the compiled program depends on."""
    options = options or CompileOptions()
    registered = "".join(f"\n{kind} {name!r}" for name, kind in declarations(user_targets(module)))
    target = native_target() if options.target is None else target_named(options.target)
    options = dataclasses.replace(options, target=target.name, points=tuple(sorted(options.points)))
    return text_key(described(module), f"{counts}{registered} {options!r} {target.variant}")


def text_key(*texts: str) -> str:
    """The hash of these texts, this CPU and this version of the compiler."""
    digest = hashlib.sha256()
    for part in (*texts, native_target().name, host().processor(), compiler_version()):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def described(module: Module) -> str:
    """The text without metadata; large constants, which take long to print, are left out of it and hashed."""
    digests: list[str] = []

    def without_metadata(i: Instruction) -> Instruction:
        op = i.op
        if isinstance(op, Constant) and (kept := _without_large(op.literal, digests)) is not op.literal:
            op = dataclasses.replace(op, literal=kept)
        return i if op is i.op and not i.metadata else i.replace(op=op, metadata=None)

    computations = tuple(
        dataclasses.replace(computation, instructions=tuple(map(without_metadata, computation)))
        for computation in module.computations
    )
    text = print_module(module.replace(computations=computations, frames=type(module.frames)(), source=None))
    return "\n".join([text, *digests])


def _without_large(literal: Literal, digests: list[str]) -> Literal:
    if literal.elements is not None:
        elements = tuple(_without_large(element, digests) for element in literal.elements)
        same = all(a is b for a, b in zip(elements, literal.elements))
        return literal if same else dataclasses.replace(literal, elements=elements)
    if literal.array is None or literal.array.size <= _PRINTED_ELEMENTS:
        return literal
    digests.append(hashlib.sha256(literal.array.view(np.uint8).data).hexdigest())
    return dataclasses.replace(literal, array=None)


@cache
def compiler_version() -> str:
    """Hash of distxla's source, and the versions of the packages that generate code or are called by it."""
    versions = [f"{name} {installed_version(name) or '?'}" for name in ("llvmlite", *host().libraries())]
    package = Path(__file__).parents[1]
    linked = [folder for name in ("scheduler", "collectives") if (folder := package / name).is_symlink()]
    return f"{source_digest([package, *linked])} {' '.join(versions)}"


def source_digest(folders: Sequence[Path]) -> str:
    """Of the content of all files, which takes 30 ms to read: it is kept under what the kernel says of the files, which
    changes whenever a file does, once some time has passed since its last change."""
    paths = sorted(path for folder in folders for path in _sources(str(folder.resolve())))
    state = repr([(path, *_identity(os.stat(path))) for path in paths])
    files = CacheFolder(cache_folder(), cache_limit())
    key = hashlib.sha256(f"source {state}".encode()).hexdigest()
    found = files.read(key)
    if found is None:
        digest = hashlib.sha256()
        for path in paths:
            digest.update(os.path.basename(path).encode())
            digest.update(Path(path).read_bytes())
        found = digest.hexdigest().encode()
        found_now = [os.stat(path) for path in paths]
        newest = max(max(one.st_mtime_ns, one.st_ctime_ns) for one in found_now)
        is_same = repr([(path, *_identity(one)) for path, one in zip(paths, found_now, strict=True)]) == state
        if is_same and clock.time_of_day_ns() - newest > SETTLED_NS:
            files.write(key, found)
    return found.decode()


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """Nobody can set the time of the last change of a file's state."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


__all__ = ["described", "program_key", "source_digest", "text_key"]
