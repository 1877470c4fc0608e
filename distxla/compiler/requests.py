"""The requests that the compile server's process answers, and all modules that they need."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from distxla import clock
from distxla.compiler.cache_folder import CacheFolder
from distxla.compiler.compile import Progress, compile_alone, compile_module
from distxla.compiler.stages import emit, emit_after
from distxla.errors import CompileError
from distxla.ops.custom_calls.user import declared
from distxla.ops.support.registry import op_classes
from distxla.targets.registry import native_target


def warm_up() -> None:
    """Do the part that every compilation needs, so that the first one doesn't wait for it."""
    op_classes()
    native_target().code.warm_up()


def answer(kind: str, arguments: list[Any], progress: Progress) -> Any:
    """The result of a request; raises the compiler's errors."""
    if kind == "compile":
        module, replicas, partitions, names, target, traced, points, in_place, through_host, *rest = arguments
        watched, folder = rest
        with declared(names):
            return compile_module(
                module,
                replicas=replicas,
                partitions=partitions,
                progress=progress,
                traced=traced,
                points=points,
                target=target,
                in_place=in_place,
                through_host=through_host,
                watched=watched,
                files=CacheFolder(*folder),
            )
    if kind == "emit":
        module, stage, replicas, partitions, names, passes, target, gpu_architecture = arguments
        with declared(names):
            return emit(
                module,
                stage,
                replicas=replicas,
                partitions=partitions,
                progress=progress,
                passes=passes,
                target=target,
                gpu_architecture=gpu_architecture,
            )
    if kind == "emit after":
        module, name, replicas, partitions, names, passes = arguments
        with declared(names):
            return emit_after(module, name, replicas=replicas, partitions=partitions, progress=progress, passes=passes)
    if kind == "alone":
        module, replicas, partitions, names, target = arguments
        with declared(names):
            compile_alone(module, replicas, partitions, progress, target)
        return None
    if kind == "abort":  # as LLVM may end its process, for tests
        progress(arguments[0])
        os.abort()
    if kind == "memory-of-python":
        progress(arguments[0])
        return bytearray(1 << 40)
    if kind == "memory-of-c++":
        progress(arguments[0])
        ctypes.CDLL("libstdc++.so.6")._Znwm(ctypes.c_size_t(1 << 40))  # operator new
    if kind == "sleep":
        progress(arguments[0])
        clock.sleep(60)
    raise CompileError(f"no request {kind!r}")
