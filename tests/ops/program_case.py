"""Whole small programs of one device as text: run by the reference, and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices
from tests.executable import require_executable

Array = np.ndarray[Any, Any]


def parsed(text: str) -> Module:
    """The verified module of a program, or of one instruction: `(f32[2], s32[]) name(f32[3] p0, ..), attributes`."""
    module = parse_module(text, "<test>")
    verify_module(module)
    require_executable(module)
    return module


def one_instruction(expression: str, operands: Sequence[str], computations: str = "") -> str:
    """A program around an instruction; `@` in the expression stands for the operands, parameters of those shapes."""
    names = [f"p{k}" for k in range(len(operands))]
    lines = [f"  {name} = {shape} parameter({k})" for k, (name, shape) in enumerate(zip(names, operands, strict=True))]
    root = f"  ROOT r = {expression.replace('@', ', '.join(names))}"
    return "\n".join(["HloModule case", computations, "ENTRY main {", *lines, root, "}", ""])


def evaluated(text: str, *arguments: Any, replicas: int = 1) -> list[Array]:
    """The array leaves of device 0's result, by the ops' `evaluate`; every device gets the arguments."""
    outs = run_reference(parsed(text), [arguments] * replicas, Counts(replicas, 1))[0]
    return [out for out in outs if out is not None]


def compiled(text: str, *arguments: Any, replicas: int = 1) -> list[Array]:
    """The same by compiled code."""
    program = compile_module(parsed(text), Counts(replicas, 1))
    return run_devices(program, [arguments] * replicas)[0]
