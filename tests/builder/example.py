"""An example of the Operation Semantics pages: a program written with the builder, arguments, and the stated result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import distxla as dx
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Example:
    """program(builder, *parameters) -> the root, or None for the last value.

    arguments: one array a parameter, the same on all devices; or with `each`, one list of arrays a device.
    wanted: the leaves of the result, the same on all devices; or with `each_wanted`, one list a device.
    off: how far a float may be from the stated one, as a part of the largest value (or of 1).
    """

    heading: str
    name: str
    program: Callable[..., Any]
    arguments: Sequence[Any]
    wanted: Sequence[Any]
    replicas: int
    off: float

    def __str__(self) -> str:
        return self.name

    def module(self) -> Module:
        b = dx.XlaBuilder(self.name, replica_count=self.replicas, num_partitions=1)
        parameters = [b.parameter(k, value, f"a{k}") for k, value in enumerate(self.device_arguments()[0])]
        module = b.build(self.program(b, *parameters))
        verify_module(module, self.replicas, 1)
        return module

    def device_arguments(self) -> list[list[Array]]:
        """arguments[device][k]."""
        if self.replicas > 1 and self.arguments and isinstance(self.arguments[0], list):
            return [[np.asarray(a) for a in row] for row in self.arguments]
        return [[np.asarray(a) for a in self.arguments] for _ in range(self.replicas)]

    def device_wanted(self) -> list[list[Array]]:
        """wanted[device][leaf]."""
        if self.replicas > 1 and isinstance(self.wanted[0], list):
            return [[np.asarray(a) for a in row] for row in self.wanted]
        return [[np.asarray(a) for a in self.wanted] for _ in range(self.replicas)]

    def check(self, outs: Sequence[Sequence[Any]]) -> None:
        """Raise AssertionError where the results are not the stated ones."""
        for device, (row, wanted) in enumerate(zip(outs, self.device_wanted(), strict=True)):
            assert len(row) == len(wanted)
            for leaf, (got, want) in enumerate(zip(row, wanted, strict=True)):
                where = f"{self.name}, device {device}, leaf {leaf}"
                got = np.asarray(got)
                assert got.shape == want.shape, f"{where}: {got.shape} instead of {want.shape}"
                assert got.dtype == want.dtype, f"{where}: {got.dtype} instead of {want.dtype}"
                if want.dtype.kind in "fc" and self.off:
                    np.testing.assert_allclose(
                        got, want, rtol=0, atol=self.off * max(1.0, abs(want).max(initial=0)), err_msg=where
                    )
                else:
                    np.testing.assert_array_equal(got, want, err_msg=where)

    def run_by_reference(self) -> list[list[Any]]:
        return run_reference(self.module(), self.device_arguments(), Counts(self.replicas, 1))


def f32(*values: Any) -> Array:
    """An array, or a scalar, of f32."""
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def s32(*values: Any) -> Array:
    return np.array(values[0] if len(values) == 1 else values, np.int32)


class Table(list[Example]):
    """Examples in the order in which they are written."""

    def add(
        self,
        heading: str,
        arguments: Sequence[Any],
        *wanted: Any,
        replicas: int = 1,
        off: float = 0,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator of a program: what it gives for the arguments."""

        def enter(program: Callable[..., Any]) -> Callable[..., Any]:
            self.append(Example(heading, program.__name__, program, arguments, wanted, replicas, off))
            return program

        return enter
