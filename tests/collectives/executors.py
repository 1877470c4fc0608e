"""A module on all its devices, by name of the executor: what tests of collectives are parametrised over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices

EXECUTORS = ("reference", "compiled")  # and, with other kernels, the names of targets: "interpreted", "nvptx"


def run_module(
    executor: str, module: Module | str, arguments: Sequence[Sequence[Any]], replicas: int, partitions: int = 1
) -> list[list[Any]]:
    """outs[d][k]. compiled: threads of this process over shared memory."""
    parsed = parse_module(module) if isinstance(module, str) else module
    verify_module(parsed, replicas, partitions)
    if executor == "reference":
        return run_reference(parsed, arguments, Counts(replicas, partitions))
    target = None if executor == "compiled" else executor
    return run_devices(compile_module(parsed, Counts(replicas, partitions), CompileOptions(target=target)), arguments)
