"""Kernels whose threads work together: no two of them race, whatever the order in which they run."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import planned
from distxla.compiler.lower.grid.program import emit_grid_program
from distxla.compiler.pipeline import Pipeline
from distxla.ir.counts import Counts
from distxla.targets.nvptx.code import code_for
from distxla.targets.nvptx.emulator.launch import ORDERS, Memory, load
from distxla.targets.nvptx.emulator.prepare import prepare
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import Array
from tests.compiler.lower.grid.ops_cases import module_text
from tests.compiler.lower.grid.reductions_cases import argmax_text
from tests.compiler.lower.grid.reductions_cases import text as reduction_text
from tests.compiler.lower.grid.scans_cases import windows
from tests.compiler.lower.grid.scatters_cases import module_text as scatter_text
from tests.compiler.lower.grid.sorts_cases import COMPARATORS, WITHOUT_KEYS, sort_text
from tests.compiler.lower.grid.transposes_cases import transpose_text

PROGRAMS = {
    "reduce, a block a line": reduction_text("add", "f32", "0", (3, 300), (1,)),
    "reduce, several blocks a line": reduction_text("add", "f64", "0", (17000,), (0,)),
    "reduce of pairs": argmax_text(2, 150, 1),
    "reduce of pairs, across": argmax_text(33, 150, 0),
    "dot": module_text("dot, tiles", "f32"),
    "dot by matrix units, two factors a word": module_text("dot, tiles", "bf16"),
    "dot by matrix units, a factor a word": module_text("dot, tiles", "f64"),
    "scatter": scatter_text("many rows", "f32", "add"),
    "dot of a vector and a matrix": module_text("dot of a vector and a matrix", "f32"),
    "dot of a matrix and a vector": module_text("dot of a matrix and a vector", "f32"),
    "transpose": transpose_text("f32", (40, 50), (1, 0)),
    "sort": sort_text(COMPARATORS["ascending"], "f32", (150,), 0),
    "sort without keys": sort_text(WITHOUT_KEYS["nonsense"], "f32", (150,), 0),
    "cumulative": windows("add", "f32", "0", (200,), 0, from_end=False),
}


@pytest.mark.sampled(one_in=6, first=("reduce, a block a line",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_orders_of_threads(name: str) -> None:
    compilation = planned(Pipeline(), parse_module(PROGRAMS[name]), Counts(1, 1))
    program = emit_grid_program(compilation.module, compilation.plan, code_for("sm_90"))
    loaded = load(prepare(str(program.llvm_module.grid.parse(program.llvm_module)), races=True))
    for step in program.steps:
        assert step.kernel is not None
        instruction = step.instruction
        computation = next(c for c in compilation.module.computations if instruction in list(c))
        shapes = [leaf for o in computation.operands(instruction) for leaf in o.shape.leaves()]
        operands = [np.random.default_rng(k).integers(0, 9, s.dims).astype(s.dtype.dtype) for k, s in enumerate(shapes)]
        found = []
        for order in ORDERS:
            results = [np.zeros(s.dims, s.dtype.dtype) for s in instruction.shape.leaves()]
            arrays: list[Array] = [*operands, *results, np.zeros(max(1, step.kernel.scratch_bytes), np.uint8)]
            addresses = [a.ctypes.data for a in arrays]
            memory = [Memory(at, at + a.nbytes) for at, a in zip(addresses, arrays, strict=True) if a.nbytes]
            for launch in step.kernel.launches:
                sizes = (launch.blocks, 1, 1), (launch.threads, 1, 1)
                loaded.launch(launch.symbol, *sizes, [0, *addresses], order=order, memory=memory)
            found.append([result.tobytes() for result in results])
        assert all(results == found[0] for results in found)
    loaded.close()
