"""The requests that the compile server's process answers, and all modules that compiling needs."""

from __future__ import annotations

from typing import Any

from distxla.compiler.cache_folder import CacheFolder
from distxla.compiler.compile import Progress, compile_alone, compile_module
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
        module, counts, options, names, folder = arguments
        with declared(names):
            return compile_module(module, counts, options, progress=progress, files=CacheFolder(*folder))
    if kind == "emit":
        from distxla.compiler.stages import emit

        module, stage, counts, options, names, passes, gpu = arguments
        with declared(names):
            return emit(module, stage, counts, options, progress=progress, passes=passes, gpu_architecture=gpu)
    if kind == "emit after":
        from distxla.compiler.stages import emit_after

        module, name, counts, options, names, passes = arguments
        with declared(names):
            return emit_after(module, name, counts, options, progress=progress, passes=passes)
    if kind == "alone":
        module, counts, options, names = arguments
        with declared(names):
            compile_alone(module, counts, options, progress)
        return None
    raise CompileError(f"no request {kind!r}")
