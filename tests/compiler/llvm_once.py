"""LLVM compiles the same code once a process, however many tests compile a program that it belongs to.

Many tests compile a program that has been compiled before: for other values, for another executor, or to look at it.
Everything before LLVM is done each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, cast

import pytest

from distxla.compiler import compile as compiler
from distxla.targets.code import CodeTarget
from distxla.targets.nvptx import host_code

MOST = 200  # objects of about 20 KB
_objects: OrderedDict[bytes, bytes] = OrderedDict()
_prepare = lru_cache(maxsize=50)(host_code.prepare)


class _Remembering:
    """Of a `CodeTarget`: its object code is looked up by the text that would be optimised."""

    def optimise(self, parsed: Any) -> None:
        parsed.key = sha256(str(parsed).encode()).digest()
        if parsed.key not in _objects:
            super().optimise(parsed)  # type: ignore[misc]

    def emit_object(self, parsed: Any) -> bytes:
        if parsed.key not in _objects:
            _objects[parsed.key] = super().emit_object(parsed)  # type: ignore[misc]
        _objects.move_to_end(parsed.key)
        if len(_objects) > MOST:
            _objects.popitem(last=False)
        return _objects[parsed.key]


@cache
def _remembering(code: CodeTarget) -> CodeTarget:
    return cast(CodeTarget, type("RememberingCode", (_Remembering, type(code)), {})())


@pytest.fixture(scope="package", autouse=True)
def llvm_once() -> Iterator[None]:
    """For conftests. Kernels for the emulated driver are known by their text, too."""
    found = compiler.code_target
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "code_target", lambda name: _remembering(found(name)))
        patch.setattr(host_code, "prepare", _prepare)
        yield


__all__ = ["llvm_once"]
