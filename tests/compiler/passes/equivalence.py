"""Passes must not change a bit: run a module before and after, by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module


def arguments(module: Module, devices: int, seed: int = 0) -> list[list[Any]]:
    """Random values for the entry's parameters, different on every device."""
    random = np.random.default_rng(seed)
    leaves = [leaf for p in module.entry_computation.parameters for leaf in p.shape.leaves()]
    return [[values(leaf, random) for leaf in leaves] for _ in range(devices)]


def values(leaf: Any, random: np.random.Generator) -> Any:
    if leaf.dtype.is_float:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
        array = random.standard_normal(leaf.dims)
        odd = random.random(leaf.dims) < 0.15
        return np.where(odd, random.choice(special, leaf.dims), array).astype(leaf.dtype.dtype)
    if leaf.dtype.kind == "pred":
        return random.random(leaf.dims) < 0.5
    return random.integers(0, 7, leaf.dims).astype(leaf.dtype.dtype)


def changed(text: str, *passes: Any) -> Module:
    """The module after the passes, each verified."""
    module = parse_module(text, "<test>")
    verify_module(module)
    for step in passes:
        module = step.run(module)
        verify_module(module)
    return module


def assert_same(text: str, module: Module, replicas: int = 1, partitions: int = 1) -> None:
    """The same bits from the text as it stands and from the module; NaNs are equal to each other."""
    original = parse_module(text, "<test>")
    args = arguments(original, replicas * partitions)
    with np.errstate(all="ignore"):
        wanted = run_reference(original, args, Counts(replicas, partitions))
        got = run_reference(module, args, Counts(replicas, partitions))
    for device, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        for leaf, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.dtype == b.dtype, (device, leaf)
            assert a.shape == b.shape, (device, leaf)
            same = (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b
            if a.dtype.kind == "f":
                same |= np.isnan(a) & np.isnan(b)
            assert np.all(same), f"device {device}, leaf {leaf}: {a} instead of {b}"


def opcodes(module: Module, computation: str | None = None) -> list[str]:
    """The opcodes of a computation (the entry) in order, without parameters."""
    found = module[computation] if computation else module.entry_computation
    return [i.opcode for i in found if not i.op.role.is_parameter]
