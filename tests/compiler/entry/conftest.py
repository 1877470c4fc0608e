"""See tests/compiler/llvm_once.py."""

from tests.compiler.llvm_once import llvm_once

__all__ = ["llvm_once"]
