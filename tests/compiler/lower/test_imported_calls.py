"""`KernelEmitter.call`: what C functions get for each kind of argument, and what they give back."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.errors import DistxlaError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.element_type import BF16, F32, F64, S8, S32, S64
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Imported
from distxla.ops.support.executable import ExecutableOp
from distxla.targets.registry import resolve_import
from tests.compiler.runner import run_single
from tests.ops.case import Array


def ran(kernel: Any, *results: Shape) -> list[Array]:
    """The results of a program whose one instruction is emitted by `kernel(emit, results)`."""

    class Emitted(ExecutableOp):
        opcode: ClassVar[str] = "test-kernel"
        lowering: ClassVar[Lowering] = Lowering.KERNEL

        def emit_kernel(self, emit: Any, results: tuple[Any, ...], *operands: Any) -> None:
            kernel(emit, *results)

    shape = results[0] if len(results) == 1 else Shape.tuple(results)
    root = Instruction("root", shape, Emitted(), ())
    module = Module("calls", (Computation("main", (root,), "root"),), "main")
    return run_single(compile_module(module, Counts(1, 1)), [])


def test_scalars_by_value() -> None:
    def kernel(emit: Any, scaled: Any, single: Any, narrow: Any, index: Any) -> None:
        scaled.store((), emit.call("ldexp", F64, emit.constant(0.75, F64), emit.constant(3, S32)))
        single.store((), emit.call("fmodf", F32, emit.constant(7.5, F32), emit.constant(2, F32)))
        narrow.store((), emit.call("abs", S32, emit.constant(-5, S8)))
        index.store((), emit.call("labs", S64, -7))

    results = ran(kernel, Shape(F64), Shape(F32), Shape(S32), Shape(S64))
    assert [r.item() for r in results] == [6.0, 1.5, 5, 7]


def test_scalars_by_reference_and_buffers() -> None:
    def kernel(emit: Any, fraction: Any, exponent: Any, copy: Any) -> None:
        place = emit.local(emit.constant(0, S32))
        fraction.store((), emit.call("frexp", F64, emit.constant(12, F64), place))
        exponent.store((), place.load(()))
        emit.fill(copy, emit.constant(0, S32))
        emit.call("memcpy", None, copy, exponent, emit.index(4))

    fraction, exponent, copy = ran(kernel, Shape(F64), Shape(S32), Shape(S32, (2,)))
    assert (fraction.item(), exponent.item(), copy.tolist()) == (0.75, 4, [4, 0])


def test_null_pointers_tables_and_imported_addresses() -> None:
    def kernel(emit: Any, now: Any, second: Any, imported: Any) -> None:
        now.store((), emit.call("time", S64, None))
        table = [emit.local(emit.constant(k, S64)) for k in (3, 4)]
        address = emit.local(emit.constant(0, S64))
        emit.call("memcpy", None, address, table[::-1], 8)
        emit.call("memmove", None, second, emit.index_of(address.load(())), 8)
        imported.store((), emit.call("llabs", S64, Imported("labs")))

    now, second, imported = ran(kernel, Shape(S64), Shape(S64), Shape(S64))
    assert now > 1_600_000_000
    assert second == 4
    assert imported == resolve_import("labs")


def test_calls_in_loops_use_one_place_in_the_frame() -> None:
    def kernel(emit: Any, sums: Any) -> None:
        with emit.loops((100_000,)) as (i,):
            place = emit.local(emit.value_of(i, S64))
            sums.store((i,), emit.call("labs", S64, place.load(())))

    (sums,) = ran(kernel, Shape(S64, (100_000,)))
    np.testing.assert_array_equal(sums, np.arange(100_000))


def test_what_c_does_not_take_by_value_is_refused() -> None:
    with pytest.raises(DistxlaError, match="no way to pass bf16 by value"):
        ran(lambda emit, result: result.store((), emit.call("fabsf", F32, emit.constant(1, BF16))), Shape(F32))
