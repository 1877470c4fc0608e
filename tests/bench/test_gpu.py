"""bench/gpu.py on the emulated driver: that it runs, and names what it times."""

from __future__ import annotations

import pytest

import bench.gpu
from bench.gpu import measure, table_of, whole_calls
from bench.kernel_programs import KernelProgram
from distxla.compiler.lower.grid import products
from distxla.targets.nvptx.interfaces.cublas import GEMM
from tests.programs import PROGRAMS

DOT = (
    "HloModule m  ENTRY e { x = f32[64,640] parameter(0)  y = f32[640,64] parameter(1)"
    "  ROOT r = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
)
SINE = "HloModule m  ENTRY e { x = f32[100] parameter(0)  ROOT r = f32[100] sine(x) }"


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated")
    monkeypatch.setattr(products, "LEAST_FOR_LIBRARY", 1)


def test_a_product_is_timed_by_kernels_and_by_cublas() -> None:
    row = measure(KernelProgram("dot", "f32", DOT), jax=False, cublas="emulated")
    assert "error" not in row
    assert len(row["kernels"]) == 1
    assert GEMM not in row["kernels"]
    assert row["kernel_s"] > 0
    assert row["cublas_s"] > 0
    assert (row["flops"], row["bytes"]) == (2 * 64 * 640 * 64, 4 * (2 * 64 * 640 + 64 * 64))


def test_other_kernels_are_timed_once() -> None:
    row = measure(KernelProgram("elementwise", "sine", SINE), jax=False)
    assert (len(row["kernels"]), row["flops"], row.get("cublas_s")) == (1, 0, None)
    assert table_of([row], 1e9).row_count == 2


def test_whole_calls_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.gpu, "PROGRAMS", [program for program in PROGRAMS if program.name == "fsdp"])
    monkeypatch.setattr(bench.gpu, "LOOP", bench.gpu.LOOP.replace("constant(1000)", "constant(3)"))
    assert whole_calls().row_count == 2
