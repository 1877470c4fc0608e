"""`python -m bench.gpu`: the kernels of bench/kernel_programs.py on this machine's GPU, beside its memory's bandwidth.

Each program is run once in this process, and each launch of it repeated, from a compiled loop, on the operands in the
GPU's memory. `moved` is what the program must move, its arguments and its results once, over the time of all its
kernels together. Programs of products are timed once more with cuBLAS, where that is installed. With JAX that finds the
GPU the same text is compiled by XLA, and its executions are timed one behind the other; the ratio is of the time with
cuBLAS, if there is one. Then whole calls of the sample programs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from rich.console import Console
from rich.table import Table

from bench.format import geometric_mean, number, seconds
from bench.kernel_programs import KernelProgram, kernel_programs
from bench.one_device import XlaProgram
from bench.one_device import arguments as arguments_for
from distxla.compiler.compile import compile_module
from distxla.errors import DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ops.dot import Dot
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions
from distxla.targets.nvptx import load
from distxla.targets.nvptx.cublas.choice import VARIABLE, WITHOUT
from distxla.targets.nvptx.driver.choice import open_driver
from distxla.targets.nvptx.interfaces.cublas import FUNCTIONS as CUBLAS_FUNCTIONS
from distxla.targets.nvptx.interfaces.cublas import GEMM
from distxla.targets.nvptx.interfaces.driver import FUNCTIONS
from distxla.targets.nvptx.program_memory import ProgramOnGpu
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices, run_single
from tests.programs import PROGRAMS

REPEAT_S, MOST_REPEATS = 0.02, 200
COPY_BYTES = 1 << 30
CALLS = 5
LOOP = """
HloModule loop
condition { s = (s32[], f32[64,256]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(1000)
  ROOT less = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[64,256]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  x = f32[64,256] get-tuple-element(s), index=1  zero = s32[] constant(0)
  row = f32[1,256] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,256}
  y = f32[1,256] sine(row)
  z = f32[64,256] dynamic-update-slice(x, y, i, zero)
  t = f32[256,64] transpose(z), dimensions={1,0}
  u = f32[256,64] cosine(t)
  v = f32[64,256] transpose(u), dimensions={1,0}
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[64,256]) tuple(j, v) }
ENTRY main { x = f32[64,256] parameter(0)  zero = s32[] constant(0)  s = (s32[], f32[64,256]) tuple(zero, x)
  l = (s32[], f32[64,256]) while(s), condition=condition, body=body
  ROOT r = f32[64,256] get-tuple-element(l), index=1 }
"""
MOST_DIFFERENCE = 0.01  # from JAX's results, which multiply in tf32 and bf16, relative to the largest one


LAUNCH = "cuLaunchKernel"


class TimedKernels(ProgramOnGpu):
    """Repeats each launch and each call of cuBLAS; kernels that write their operands do so again.

    times: seconds by the kernel's function, and by cuBLAS's.
    """

    times: dict[str, float]

    def driver_function(self, name: str) -> int:
        address = super().driver_function(name)
        if name != LAUNCH:
            return address
        symbols = [launch.symbol for kernel in self._launched for launch in kernel.launches]
        names = dict(zip(self._functions, symbols, strict=True))
        return self._repeating(address, FUNCTIONS[LAUNCH], lambda arguments: names[arguments[0]])

    def begin(self, context: int, constants: int) -> None:
        super().begin(context, constants)
        state = self._memories[context].state
        if self._cublas is not None:
            state.multiply = self._repeating(self._cublas.multiply, CUBLAS_FUNCTIONS[GEMM], lambda arguments: GEMM)

    def _repeating(self, address: int, types: Sequence[Any], name_of: Callable[[Sequence[Any]], str]) -> int:
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *types)
        loop = compiled_loop(types)

        def timed(arguments: Sequence[Any], count: int) -> float:
            self._context.synchronise()
            begin = time.perf_counter()
            if loop(address, count, *arguments):
                raise AssertionError("a launch failed")
            self._context.synchronise()
            return time.perf_counter() - begin

        def repeated(*arguments: Any) -> int:
            timed(arguments, 1)
            once = timed(arguments, 1)
            count = max(3, min(MOST_REPEATS, int(REPEAT_S / once)))
            times, name = TimedKernels.times, name_of(arguments)
            times[name] = times.get(name, 0.0) + timed(arguments, count) / count
            return 0

        made = kind(repeated)
        self._held = [*getattr(self, "_held", []), made]
        return ctypes.cast(made, ctypes.c_void_p).value or 0


@cache
def compiled_loop(types: tuple[Any, ...]) -> Callable[..., int]:
    """A function (address, count, arguments...) that calls the C function there so often, and returns the `or` of its
    results: Python would take longer for each call than a short kernel. types: of ctypes, integers and pointers."""
    i32, i64 = ir.IntType(32), ir.IntType(64)
    values = [ir.IntType(8 * ctypes.sizeof(kind)) for kind in types]
    module = ir.Module("loop")
    function = ir.Function(module, ir.FunctionType(i32, [i64, i64, *values]), "loop")
    address, count, *arguments = function.args
    entry, body, end = (function.append_basic_block(name) for name in ("entry", "body", "end"))
    build = ir.IRBuilder(entry)
    called = build.inttoptr(address, ir.FunctionType(i32, values).as_pointer())
    build.branch(body)
    build.position_at_end(body)
    done, results = build.phi(i64), build.phi(i32)
    more, found = build.add(done, i64(1)), build.or_(results, build.call(called, arguments))
    for phi, first, later in ((done, i64(0), more), (results, i32(0), found)):
        phi.add_incoming(first, entry)
        phi.add_incoming(later, body)
    build.cbranch(build.icmp_unsigned("<", more, count), body, end)
    build.position_at_end(end)
    build.ret(found)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, *types)(engine.get_function_address("loop"))
    made.engine = engine  # type: ignore[attr-defined]  # its memory holds the code
    return made


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of a copy in the GPU's memory."""
    with open_driver().context(0) as context:
        stream = context.create_stream()
        first, second = context.allocate(COPY_BYTES), context.allocate(COPY_BYTES)
        context.copy(second, first, COPY_BYTES, stream)
        context.synchronise(stream)
        begin = time.perf_counter()
        for _ in range(20):
            context.copy(second, first, COPY_BYTES, stream)
        context.synchronise(stream)
        rate = 40 * COPY_BYTES / (time.perf_counter() - begin)
        context.free(first)
        context.free(second)
    return rate


def measure(kernel: KernelProgram, jax: bool, cublas: str | None = None) -> dict[str, Any]:
    """name, kernel_s, kernels, cublas_s, bytes, flops, jax_s, differs, error: what could be had. cublas: which one,
    as of DISTXLA_CUBLAS, by default that variable's."""
    cublas = os.environ.get(VARIABLE, "") if cublas is None else cublas
    row: dict[str, Any] = {"name": f"{kernel.group}: {kernel.name}"}
    try:
        module = parse_module(kernel.text)
        arguments = arguments_for(kernel.text, kernel.integers, kernel.floats)
        program = compile_module(module, Counts(1, 1), CompileOptions(target="nvptx"))
        leaves = [*program.parameter_leaves, *program.result_leaves]
        row["bytes"] = sum(leaf.byte_size for leaf in leaves)
        row["kernels"] = _times(program, arguments, WITHOUT)
        row["kernel_s"] = sum(row["kernels"].values()) or None  # all on the host
        row["flops"] = _flops(module)
        if any(kernel.products for kernel in program.grid.launched):
            by_cublas = _times(program, arguments, cublas)
            row["cublas_s"] = sum(by_cublas.values()) if GEMM in by_cublas else None
        ours = run_single(program, arguments)
        if jax:
            row["jax_s"], theirs = _by_jax(kernel.text, arguments)
            row["differs"] = max(map(_difference, ours, theirs), default=0.0)
    except (DistxlaError, AssertionError, RuntimeError, TypeError) as error:
        row["error"] = (str(error).strip() or repr(error)).splitlines()[0][:80]
    return row


def _times(program: CompiledProgram, arguments: list[Any], cublas: str) -> dict[str, float]:
    TimedKernels.times = {}
    patches = mock.patch.object(load, "ProgramOnGpu", TimedKernels), mock.patch.dict(os.environ, {VARIABLE: cublas})
    with patches[0], patches[1], closing(Devices(program)) as devices:
        devices.store([arguments])
        devices.run()
    return TimedKernels.times


def _flops(module: Module) -> int:
    """Of the dots of the entry computation."""
    computation, total = module.entry_computation, 0
    for instruction in computation:
        if isinstance(instruction.op, Dot):
            left = computation.operands(instruction)[0].shape
            contracted = [left.dims[d] for d in instruction.op.dimensions.lhs_contracting]
            total += 2 * instruction.shape.size * prod(contracted)
    return total


def _by_jax(text: str, arguments: list[Any]) -> tuple[float, list[Any]]:
    program = XlaProgram(text)
    program.load(arguments)
    outs = program.results()
    begin = time.perf_counter()
    program.run()
    count = max(3, min(MOST_REPEATS, int(REPEAT_S / (time.perf_counter() - begin))))
    begin = time.perf_counter()
    for _ in range(count - 1):
        program.executable.execute(program.arguments)
    program.run()
    return (time.perf_counter() - begin) / count, outs


def _difference(ours: Any, theirs: Any) -> float:
    """The largest one, relative to the largest result."""
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide).ravel(), np.asarray(theirs).astype(wide).ravel()
    scale = float(np.max(np.abs(b), initial=0.0)) or 1.0
    return float(np.max(np.abs(a - b), initial=0.0)) / scale


def table_of(rows: list[dict[str, Any]], bandwidth: float) -> Table:
    table = Table(title=f"kernels on a GPU that copies {bandwidth / 1e9:.0f} GB/s", title_justify="left")
    table.add_column("kernel", no_wrap=True)
    for header in ("time", "moved", "of a copy", "TFLOP/s", "by cuBLAS", "JAX", "ratio", "differs"):
        table.add_column(header, justify="right")
    ratios: list[float | None] = []
    for row in rows:
        kernel_s, cublas_s, jax_s = row.get("kernel_s"), row.get("cublas_s"), row.get("jax_s")
        rate = row["bytes"] / kernel_s if kernel_s else None
        used = cublas_s or kernel_s
        ratios.append(used / jax_s if used and jax_s else None)
        table.add_row(
            row["name"],
            seconds(kernel_s),
            "-" if rate is None else f"{rate / 1e9:.0f} GB/s",
            "-" if rate is None else f"{100 * rate / bandwidth:.0f} %",
            f"{row['flops'] / kernel_s / 1e12:.2f}" if kernel_s and row.get("flops") else "-",
            seconds(cublas_s),
            seconds(jax_s),
            number(ratios[-1]),
            row.get("error") or ("-" if "differs" not in row else f"{row['differs']:.1g}"),
        )
    table.add_section()
    table.add_row("geometric mean", *[""] * 6, number(geometric_mean(ratios)), "")
    return table


def whole_calls() -> Table:
    """Of a loop on one device, and of the sample programs on 8 devices of this process."""
    table = Table("program", "a call", title="whole calls, arguments and results on the host", title_justify="left")
    loop = parse_module(LOOP)
    programs = [("1000 iterations of 4 kernels", loop, 1, [[np.linspace(0, 1, 64 * 256, dtype=np.float32)]])]
    programs += [(p.name, parse_module(p.text("partitioned")), p.devices, p.arguments) for p in PROGRAMS]
    for name, module, devices, arguments in programs:
        program = compile_module(module, Counts(1, devices), CompileOptions(target="nvptx"))
        times = []
        with closing(Devices(program)) as loaded:
            loaded.store([[np.asarray(value) for value in values] for values in arguments])
            for _ in range(1 + CALLS):
                begin = time.perf_counter()
                loaded.run()
                times.append(time.perf_counter() - begin)
        table.add_row(name, seconds(float(np.median(times[1:]))))
    return table


def jax_finds_the_gpu() -> bool:
    os.environ.setdefault("JAX_PLATFORMS", "cuda")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        import jax

        return any(device.platform == "gpu" for device in jax.devices())
    except (ImportError, RuntimeError, AssertionError) as error:  # the last of versions that know no such platform
        print(f"no column of JAX: {error or 'it finds no GPU'}", file=sys.stderr)
        return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--match", default="", help="kernels whose group or name has this in it")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    options = parser.parse_args()
    os.environ.setdefault("DISTXLA_GPU_DRIVER", "cuda")
    bandwidth, jax = copy_bandwidth(), jax_finds_the_gpu()
    rows = []
    for kernel in kernel_programs():
        if options.match in f"{kernel.group} {kernel.name}":
            rows.append(measure(kernel, jax))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps({"copy_bytes_per_s": bandwidth, "rows": rows}))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140)
    console.print(table_of(rows, bandwidth))
    if not options.match:
        console.print(whole_calls())
    wrong = [row["name"] for row in rows if "kernels" not in row or row.get("differs", 0.0) > MOST_DIFFERENCE]
    print("\n".join(f"wrong, or not run: {name}" for name in wrong), end="\n" * bool(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
