"""Programs around one custom-call of a GPU library, run by both executors against an answer in f64."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.runner import run_devices
from tests.executable import require_executable
from tests.ops.case import Array
from tests.tolerances import ulps_between

NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class LibraryCall:
    """A program `(results) custom-call(operands)` whose results are all returned.

    results, operands: shapes as HLO text, with layouts where they matter.  config: the backend_config, as JSON or as
    text.  attributes: more of them, as text.
    """

    target: str
    results: Sequence[str]
    operands: Sequence[str]
    config: Mapping[str, Any] | str = field(default_factory=dict)
    attributes: str = ""

    @property
    def text(self) -> str:
        names = ", ".join(f"p{k}" for k in range(len(self.operands)))
        result = self.results[0] if len(self.results) == 1 else f"({', '.join(self.results)})"
        config = self.config if isinstance(self.config, str) else json.dumps(self.config)
        parts = [f'custom-call({names}), custom_call_target="{self.target}"']
        parts += [self.attributes] * bool(self.attributes) + [f"backend_config={config}"] * bool(self.config)
        lines = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(self.operands)]
        return "\n".join(["HloModule call", "ENTRY main {", *lines, f"  ROOT r = {result} {', '.join(parts)}", "}", ""])

    @property
    def module(self) -> Module:
        module = parse_module(self.text, "<test>")
        verify_module(module)
        return module

    @property
    def shapes(self) -> list[Shape]:
        """Of the operands."""
        return list(self.module.entry_computation.program_shape.parameters)

    def run(self, *arguments: Array) -> tuple[list[Array], list[Array]]:
        """The results by the reference, and by compiled code."""
        module = self.module
        assert not obstacles(module)
        reference = run_reference(module, [arguments], Counts(1, 1))[0]
        compiled = run_devices(compile_module(module, Counts(1, 1)), [arguments])[0]
        return [r for r in reference if r is not None], compiled

    def refusal(self) -> str:
        """Why the call isn't executed: the same when it is checked and when it is run."""
        module = self.module
        (found,) = obstacles(module)
        arguments = [np.zeros(shape.dims, shape.dtype.dtype) for shape in self.shapes]
        with pytest.raises(UnsupportedOpError) as checked:
            require_executable(module)
        with pytest.raises(UnsupportedOpError) as run:
            run_reference(module, [arguments], Counts(1, 1))
        with pytest.raises(UnsupportedOpError) as compiled:
            compile_module(module, Counts(1, 1))
        assert {checked.value.message, run.value.message, compiled.value.message} == {found[1]}
        assert checked.value.location is not None
        return found[1]


def drawn(shape: Shape, random: np.random.Generator) -> Array:
    """Numbers that a product of a few of them doesn't carry out of range."""
    element = shape.dtype
    if element.is_complex:
        return (random.standard_normal(shape.dims) + 1j * random.standard_normal(shape.dims)).astype(element.dtype)
    if element.is_float:
        return random.standard_normal(shape.dims).astype(element.dtype)
    return random.integers(-9, 10, shape.dims).astype(element.dtype)


def check(call: LibraryCall, answer: Callable[..., Sequence[Any]], ulps: int = 4, seed: int = 0) -> None:
    """Run the call on random arguments; the answer takes them in f64 (or complex, or integers) and gives the results.

    ulps: how far f32 and f64 may be off, relative to the largest magnitude. Narrower floats are rounded once.
    """
    random = np.random.default_rng(seed)
    arguments = [drawn(shape, random) for shape in call.shapes]
    compare(call, arguments, answer(*map(widened, arguments)), ulps)


def compare(call: LibraryCall, arguments: Sequence[Array], wanted: Sequence[Any], ulps: int = 4) -> None:
    leaves = list(call.module.entry_computation.root_instruction.shape.leaves())
    for executor, results in zip(("reference", "compiled"), call.run(*arguments), strict=True):
        for k, (got, shape, right) in enumerate(zip(results, leaves, wanted, strict=True)):
            assert got.shape == shape.dims
            assert near(got, np.asarray(right), shape.dtype, ulps), f"{executor}, result {k}: {got} is not {right}"


def widened(array: Array) -> Array:
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def near(got: Array, wanted: Array, element: ElementType, ulps: int) -> bool:
    if element.is_integer:
        return bool((got == wanted).all())
    if element.bits < 32:
        return bool((ulps_between(got, wanted.astype(element.dtype)) <= 1).all())
    unit = np.finfo(element.real_part.dtype).eps
    scale = max(1, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    return bool(np.allclose(got, wanted, rtol=0, atol=4 * ulps * unit * scale, equal_nan=True))


def assert_refused(call: LibraryCall, wanted: str) -> None:
    """The reason names the target and holds the text."""
    why = call.refusal()
    assert wanted in why
    assert f'"{call.target}"' in why


def assert_xla_reads(call: LibraryCall) -> None:
    """XLA's parser takes what is printed, and its own print is the same module."""
    hlo = pytest.importorskip("jaxlib._hlo")
    module = call.module
    again = parse_module(hlo.hlo_module_from_text(print_module(module)).to_string(), "<xla>")
    mine, its = (m.entry_computation.root_instruction for m in (module, again))
    assert its.op == mine.op
    assert its.shape.compatible(mine.shape)
