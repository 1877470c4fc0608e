"""Products by cuBLAS: which ones, with which arguments, and what happens where it fails."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.lower.grid import products
from distxla.errors import ArgumentError, DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.element_type import BF16, F16, F32, F64, S32, ElementType
from distxla.program.artifact import Factor, MatrixProduct
from distxla.program.options import CompileOptions
from distxla.targets.nvptx import load, process_gpu
from distxla.targets.nvptx.cublas import choice
from distxla.targets.nvptx.cublas.binding import Cublas
from distxla.targets.nvptx.cublas.choice import VARIABLE, load_cublas, open_cublas
from distxla.targets.nvptx.cublas.emulated import EmulatedCublas, emulated_cublas
from distxla.targets.nvptx.cublas.gemm import gemm_numbers
from distxla.targets.nvptx.driver.choice import chosen, is_emulated, open_driver
from distxla.targets.nvptx.driver.driver import Driver
from distxla.targets.nvptx.driver.emulated.library import EmulatedLibrary
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.interfaces import cublas as interface
from distxla.targets.nvptx.interfaces.driver import ILLEGAL_ADDRESS
from distxla.targets.nvptx.process_gpu import ProcessGpu
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices, run_single
from tests.samples import in_turn

Array = np.ndarray[Any, Any]
# name -> result, left, right, attributes of the dot, numpy.einsum's text, and whether cuBLAS computes it
DOTS = {
    "rows by columns": ("[48,40]", "[48,36]", "[36,40]", "lhs={1} rhs={0}", "ik,kj->ij", True),
    "columns by columns": ("[48,40]", "[36,48]", "[36,40]", "lhs={0} rhs={0}", "ki,kj->ij", True),
    "rows by rows": ("[48,40]", "[48,36]", "[40,36]", "lhs={1} rhs={1}", "ik,jk->ij", True),
    "columns by rows": ("[48,40]", "[36,48]", "[40,36]", "lhs={0} rhs={1}", "ki,jk->ij", True),
    "a batch": ("[3,48,40]", "[3,48,36]", "[3,36,40]", "lhs={2} rhs={1} batch=0,0", "bik,bkj->bij", True),
    "a batch in between": ("[3,48,40]", "[48,3,36]", "[36,3,40]", "lhs={2} rhs={0} batch=1,1", "ibk,kbj->bij", True),
    "a batch at the end": ("[3,48,40]", "[48,36,3]", "[36,40,3]", "lhs={1} rhs={0} batch=2,2", "ikb,kjb->bij", True),
    "two of each": ("[4,12,40]", "[4,12,6,6]", "[6,6,40]", "lhs={2,3} rhs={0,1}", "abkl,klj->abj", True),
    "crossed terms": ("[48,40]", "[6,48,6]", "[6,6,40]", "lhs={0,2} rhs={1,0}", "kil,lkj->ij", True),
    "few rows": ("[31,40]", "[31,36]", "[36,40]", "lhs={1} rhs={0}", "ik,kj->ij", False),
    "few terms": ("[48,40]", "[48,31]", "[31,40]", "lhs={1} rhs={0}", "ik,kj->ij", False),
    "by a vector": ("[512]", "[512,300]", "[300]", "lhs={1} rhs={0}", "ik,k->i", False),
}
# factors, result, and the largest error in relation to the sum of the terms' magnitudes
TYPES = [(F32, F32, 1e-6), (F64, F64, 1e-14), (BF16, BF16, 8e-3), (F16, F16, 1e-3), (BF16, F32, 1e-6), (S32, S32, 0)]
PRODUCT = MatrixProduct(0, 1, (1, 48, 40, 36), *(Factor(F32, k, 0, 0, s, 1) for k, s in enumerate((36, 40, 40))))


def dot(name: str, factors: ElementType, result: ElementType) -> str:
    of_result, lhs, rhs, attributes, _, _ = DOTS[name]
    contracting, _, batch = attributes.partition(" batch=")
    written = contracting.replace("lhs=", "lhs_contracting_dims=").replace(" rhs=", ", rhs_contracting_dims=")
    if batch:
        left, right = batch.split(",")
        written += f", lhs_batch_dims={{{left}}}, rhs_batch_dims={{{right}}}"
    return (
        f"HloModule m  ENTRY e {{ x = {factors.name}{lhs} parameter(0)  y = {factors.name}{rhs} parameter(1)"
        f"  ROOT r = {result.name}{of_result} dot(x, y), {written} }}"
    )


def factors_of(name: str, kind: ElementType) -> list[Array]:
    random = np.random.default_rng(1)
    shapes = [tuple(map(int, text[1:-1].split(","))) for text in DOTS[name][1:3]]
    return [(random.standard_normal(shape) * (4 if kind is S32 else 1)).astype(kind.dtype) for shape in shapes]


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any number of multiplications are cuBLAS's."""
    monkeypatch.setattr(products, "LEAST_FOR_LIBRARY", 1)


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> EmulatedCublas | None:
    """The emulated one beside the emulated driver; on a GPU, None for the one that is installed there."""
    if is_emulated(chosen()):
        monkeypatch.setenv(VARIABLE, "emulated")
        return emulated_cublas(chosen())
    monkeypatch.delenv(VARIABLE, raising=False)
    if open_cublas(chosen(), open_driver().version) is None:
        pytest.skip("no cuBLAS is installed")
    return None


@pytest.mark.sampled(one_in=12, first=("rows by rows-types2", "a batch in between-types5"))
@pytest.mark.parametrize(("name", "types"), [*in_turn(DOTS, TYPES), *in_turn(DOTS, [*TYPES[4:], *TYPES[:4]])])
def test_products(name: str, types: tuple[ElementType, ElementType, float], cublas: EmulatedCublas | None) -> None:
    """Those that cuBLAS takes are computed by it, all give the right numbers."""
    factors, result, tolerance = types
    before = cublas.products if cublas else 0
    arguments = factors_of(name, factors)
    program = compile_module(parse_module(dot(name, factors, result)), Counts(1, 1), CompileOptions(target="nvptx"))
    (got,) = run_single(program, list(arguments))
    exact = [a.astype(np.float64) for a in arguments]
    wanted, magnitudes = (np.einsum(DOTS[name][4], *f) for f in (exact, [np.abs(a) for a in exact]))
    assert got.dtype == result.dtype
    assert (np.abs(got.astype(np.float64) - wanted) <= tolerance * magnitudes).all()
    if cublas is not None:
        assert cublas.products - before == (DOTS[name][5] and factors is not S32)


@pytest.mark.usefixtures("emulator")
def test_without_it_kernels_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    before = emulated_cublas("emulated").products
    program = compile_module(parse_module(dot("a batch", F32, F32)), Counts(1, 1), CompileOptions(target="nvptx"))
    for asked in ("none", ""):
        monkeypatch.setenv(VARIABLE, asked)
        run_single(program, factors_of("a batch", F32))
    assert emulated_cublas("emulated").products == before


def test_a_product_waits_for_its_factors(cublas: EmulatedCublas | None) -> None:
    """Kernels before and behind it are in the same queue, and nothing waits in between."""
    text = (
        "HloModule m  ENTRY e { x = f32[48,48] parameter(0)  y = f32[48,48] exponential(x)"
        "  z = f32[48,48] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  w = f32[48,48] dot(z, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
        "  ROOT r = f32[48,48] add(w, z) }"
    )
    x = np.linspace(-2, 1, 48 * 48, dtype=np.float32).reshape(48, 48)
    program = compile_module(parse_module(text), Counts(1, 1), CompileOptions(target="nvptx"))
    devices = Devices(program)
    try:
        for scale in (1, 2):
            y = np.exp((x * scale).astype(np.float64))
            np.testing.assert_allclose(devices([[x * np.float32(scale)]])[0][0], (y @ y).T @ y + y @ y, rtol=1e-5)
    finally:
        devices.close()


# --- arguments


def test_row_major_matrices_are_transposed_ones_of_cublas() -> None:
    numbers = gemm_numbers(PRODUCT)
    assert numbers is not None
    wanted = {"m": 40, "n": 48, "k": 36, "lda": 40, "ldb": 36, "ldc": 40, "transa": 0, "transb": 0, "batchCount": 1}
    assert {name: numbers[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"a": Factor(F32, 0, 0, 0, 36, 2)},  # no neighbours side by side
        {"a": Factor(F32, 0, 0, 0, 35, 1)},  # rows that overlap
        {"a": Factor(F32, 0, 0, 0, 1, 47)},
        {"c": Factor(F32, 2, 0, 0, 1, 48)},
        {"a": Factor(F64, 0, 0, 0, 36, 1)},
        {"c": Factor(F64, 2, 0, 0, 40, 1)},
        {"shape": (1, 1 << 31, 40, 36)},
        {"a": Factor(F32, 0, 0, 0, 1 << 31, 1)},
        {kind: Factor(S32, k, 0, 0, s, 1) for k, (kind, s) in enumerate([("a", 36), ("b", 40), ("c", 40)])},
    ],
)
def test_products_that_it_does_not_take(change: dict[str, Any]) -> None:
    assert gemm_numbers(replace(PRODUCT, **change)) is None


def test_small_products_are_the_kernels_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = (
        "HloModule m  ENTRY e { x = f32[256,256] parameter(0)  y = f32[256,COLUMNS] parameter(1)"
        "  ROOT r = f32[256,COLUMNS] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    )
    found = []
    for columns in ("255", "256"):
        module = parse_module(text.replace("COLUMNS", columns))
        program = compile_module(module, Counts(1, 1), CompileOptions(target="nvptx"))
        found.append([len(kernel.products) for kernel in program.grid.launched])
    assert found == [[0], [1]]


# --- failures


@pytest.mark.usefixtures("emulator")
def test_a_failed_product_names_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    said = reported(monkeypatch, lambda multiply, *arguments: interface.NOT_SUPPORTED)
    assert "r (dot) or before it: cublasGemmStridedBatchedEx failed: CUBLAS_STATUS_NOT_SUPPORTED (15)" in said


@pytest.mark.usefixtures("emulator")
def test_a_product_beyond_the_memory_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the emulated driver's are: at the next wait."""
    said = reported(monkeypatch, beyond)
    assert "r (dot) or before it: " in said
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said
    assert "in a product of cuBLAS" in said


@pytest.mark.usefixtures("emulator")
def test_a_fault_before_a_product_is_told_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS returns a status of its own for what an earlier kernel did, and the context is lost."""
    driver = EmulatedLibrary()

    def after_a_fault(multiply: Any, *arguments: Any) -> int:
        beyond(multiply, *arguments)
        assert driver.cuCtxSynchronize() == ILLEGAL_ADDRESS
        return interface.EXECUTION_FAILED

    said = reported(monkeypatch, after_a_fault, driver)
    assert "r (dot) or before it: " in said
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said


def beyond(multiply: Any, *arguments: Any) -> int:
    """A product of a matrix that is outside of the GPU's memory."""
    place = list(interface.GEMM_PARAMETERS).index("A") + 1
    return int(multiply(*arguments[:place], arguments[place] + (1 << 40), *arguments[place + 1 :]))


def reported(
    monkeypatch: pytest.MonkeyPatch, instead: Callable[..., int], driver: EmulatedLibrary | None = None
) -> str:
    """What is reported for a program with a product, where `instead` gets cuBLAS's function and the arguments."""
    driver = driver or EmulatedLibrary()
    library = EmulatedCublas(driver)
    function = partial(instead, getattr(library, interface.GEMM))
    types = interface.FUNCTIONS[interface.GEMM]
    monkeypatch.setattr(library, interface.GEMM, ctypes.CFUNCTYPE(ctypes.c_int, *types)(function))
    gpu = ProcessGpu(Driver(driver).context(0), "emulated", (12, 8))
    monkeypatch.setattr(load, "gpu_of", lambda *_: gpu)
    monkeypatch.setattr(process_gpu, "open_cublas", lambda *_: (library, "the emulated cuBLAS"))
    said: list[str] = []
    program = compile_module(parse_module(dot("a batch", F32, F32)), Counts(1, 1), CompileOptions(target="nvptx"))
    image = load.load_image(program, report=lambda why, frames: said.append(why))
    monkeypatch.setattr(load, "load_image", lambda *_: image)
    devices = Devices(program)
    with pytest.raises(AssertionError, match="status"):
        devices([factors_of("a batch", F32)])
    devices.close()
    return said[0]


def test_a_library_that_cannot_begin() -> None:
    """The error says how to do without."""
    library = EmulatedCublas(EmulatedLibrary())
    with pytest.raises(DriverError) as found:
        Cublas(library, "libcublas.so.12").handle(0)
    wanted = "cublasCreate_v2 failed: CUBLAS_STATUS_NOT_INITIALIZED (1): from libcublas.so.12; with DISTXLA_CUBLAS=none"
    assert wanted in found.value.message


def test_a_handle_that_cannot_be_used_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EmulatedLibrary()
    library = EmulatedCublas(driver)
    destroyed: list[int | None] = []
    monkeypatch.setattr(library, "cublasSetMathMode", lambda handle, mode: interface.NOT_SUPPORTED)
    monkeypatch.setattr(library, "cublasDestroy_v2", lambda handle: destroyed.append(handle.value))
    with Driver(driver).context(0) as context:
        context.synchronise()  # and with it the thread's
        with pytest.raises(DriverError, match="cublasSetMathMode failed"):
            Cublas(library, "libcublas.so.12").handle(0)
    assert destroyed == [1]


# --- which library


@pytest.mark.parametrize(
    ("driver", "asked", "error"),
    [
        ("emulated", "/usr/lib/libcublas.so", "'/usr/lib/libcublas.so': the emulated driver has emulated or none"),
        ("cuda", "emulated", "only beside the emulated driver"),
        ("cuda", "/no/libcublas.so.12", "can't be loaded: .*; with DISTXLA_CUBLAS=none programs do without"),
    ],
)
def test_what_cannot_be_had(driver: str, asked: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, asked)
    with pytest.raises((ArgumentError, DriverError), match=error):
        open_cublas(driver, (12, 8))


def test_a_library_that_is_another_one() -> None:
    with pytest.raises(DistxlaError, match="has no function cublasCreate_v2: it is no cuBLAS"):
        load_cublas("libc.so.6")


@pytest.mark.parametrize(("version", "wanted"), [((13, 1), "13"), ((12, 9), "12"), ((11, 8), None)])
def test_the_newest_that_the_driver_supports(
    version: tuple[int, int], wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "packaged", lambda places: next(iter(places.values())))
    monkeypatch.setattr(choice, "load_cublas", lambda path: path)
    choice.installed.cache_clear()
    found = open_cublas("cuda", version)
    choice.installed.cache_clear()
    assert (found and found[1].rpartition(".")[2]) == wanted
