"""Kernels with a planted fault, and the error that each one gets."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from distxla.errors import ArgumentError, CompileError
from distxla.targets.nvptx.emulator.faults import (
    DivergentBarrierError,
    KernelFaultError,
    MisalignedAccessError,
    MissingLanesError,
    OutOfBoundsError,
    SharedRaceError,
    TrapError,
)
from distxla.targets.nvptx.emulator.launch import NUMBERED, ORDERS, Memory, Order, load
from distxla.targets.nvptx.emulator.prepare import prepare
from tests.targets.nvptx.emulator import kernels
from tests.targets.nvptx.emulator.kernels_cases import floats, memory, sum_in_order

BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
SHUFFLE = "call float @llvm.nvvm.shfl.sync.down.f32"


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def small(body: str, shared: str = "") -> str:
    """A kernel k(out) of one block; %t is the thread's number."""
    return f"""{kernels.HEADER}
declare void @llvm.trap()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{shared}
define ptx_kernel void @k(ptr %out) convergent {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
{body}
}}
"""


SKIPS = """  %skips = icmp eq i32 %t, 37
  br i1 %skips, label %end, label %go
go:
"""
END = "  br label %end\nend:\n  ret void"


def run(text: str, threads: int, size: int = 256, order: Order = NUMBERED, **mode: bool) -> np.ndarray:
    out = np.zeros(size, np.uint8)
    module = load(prepare(text, **mode))
    try:
        module.launch("k", (1, 1, 1), (threads, 1, 1), [out.ctypes.data], order=order, memory=memory(out))
    finally:
        module.close()
    return out


@pytest.mark.parametrize("name", ["reduce", "transpose"])
def test_a_removed_barrier_shows(name: str) -> None:
    """In results of at least one order, and as a race in every order."""
    x, out = floats(64, 64), np.zeros((64, 64), np.float32)
    text, grid, block, arguments, expected = {
        "reduce": (kernels.REDUCE, (64, 1, 1), (64, 1, 1), [64], sum_in_order(x, 64)),
        "transpose": (kernels.TRANSPOSE, (2, 2, 1), (32, 8, 1), [], x.T),
    }[name]
    broken = changed(text, BARRIER, "")
    arguments = [x.ctypes.data, out.ctypes.data, *arguments]
    unchecked, racing = load(prepare(broken)), load(prepare(broken, races=True))
    right = []
    for order in ORDERS:
        unchecked.launch(name, grid, block, arguments, order=order)
        right.append(np.array_equal(out.ravel()[: expected.size], expected.ravel()))
        with pytest.raises(SharedRaceError, match="since the last barrier"):
            racing.launch(name, grid, block, arguments, order=order, memory=memory(x, out))
    assert not all(right)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_divergent_barrier(order: Order) -> None:
    with pytest.raises(DivergentBarrierError, match=r"kernel k, block \(0, 0, 0\), thread .*\(37, 0, 0\).* has ended"):
        run(small(SKIPS + BARRIER + END), 64, order=order)


def test_threads_at_two_barriers() -> None:
    body = "  %c = icmp ult i32 %t, 32\n  br i1 %c, label %a, label %b\n"
    text = small(f"{body}a:\n{BARRIER}  br label %end\nb:\n{BARRIER.replace('i32 0', 'i32 1')}{END}")
    with pytest.raises(DivergentBarrierError, match=r"waits in k: .*barrier") as caught:
        run(text, 64)
    assert {caught.value.fault.thread[0] // 32, caught.value.fault.other[0] // 32} == {0, 1}


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_lane_that_has_ended(order: Order) -> None:
    text = small(f"{SKIPS}  %v = {SHUFFLE}(i32 -1, float 1.0, i32 1, i32 31)\n  store float %v, ptr %out\n{END}")
    with pytest.raises(MissingLanesError, match=r"thread \(37, 0, 0\) has ended; in k: .*shfl"):
        run(text, 64, order=order)


def test_a_lane_at_a_barrier() -> None:
    body = f"{SKIPS}  call void @llvm.nvvm.bar.warp.sync(i32 -1)\n  br label %end\nend:\n{BARRIER}  ret void"
    with pytest.raises(MissingLanesError, match=r"thread \(37, 0, 0\) waits in k: .*barrier"):
        run(small(body), 64)


def test_lanes_that_do_not_exist() -> None:
    text = small("  call void @llvm.nvvm.bar.warp.sync(i32 -1)\n  ret void")
    with pytest.raises(MissingLanesError, match="its block has no thread 20"):
        run(text, 20)
    run(text.replace("i32 -1", f"i32 {(1 << 20) - 1}"), 20)


def test_a_lane_outside_of_its_mask() -> None:
    text = small("  call void @llvm.nvvm.bar.warp.sync(i32 3)\n  ret void")
    with pytest.raises(MissingLanesError, match=r"thread \(2, 0, 0\): .* is not among them itself"):
        run(text, 3)


STORE = """  %p = getelementptr i32, ptr %out, i32 %t
  store i32 7, ptr %p
  ret void"""


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_store_out_of_bounds(order: Order) -> None:
    assert run(small(STORE), 64, order=order, checked=True).tobytes() == b"\7\0\0\0" * 64
    with pytest.raises(OutOfBoundsError, match=r"thread \(64, 0, 0\): a write of 4 bytes .* in k: store i32 7"):
        run(small(STORE), 65, order=order, checked=True)


OUT_OF_BOUNDS = {
    "below": "  %p = getelementptr i8, ptr %out, i64 -4\n  %v = load i32, ptr %p\n  store i32 %v, ptr %out\n  ret void",
    "across the end": "  %p = getelementptr i8, ptr %out, i64 252\n  store i64 1, ptr %p, align 4\n  ret void",
    "null": "  store i8 1, ptr null\n  ret void",
    "copy": "  %p = getelementptr i8, ptr %out, i64 200\n"
    "  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %out, i64 57, i1 false)\n  ret void",
    "atomic": "  %p = getelementptr i32, ptr %out, i64 64\n  %v = atomicrmw add ptr %p, i32 1 monotonic\n  ret void",
    "constant": "  store i32 1, ptr @c\n  ret void",
    "behind a constant": "  %p = getelementptr i32, ptr @c, i64 2\n  %v = load i32, ptr %p\n  store i32 %v, ptr %out\n"
    "  ret void",
    "shared": "  %p = getelementptr i32, ptr addrspace(3) @s, i32 4\n  store i32 1, ptr addrspace(3) %p\n  ret void",
    "generic shared": "  %g = addrspacecast ptr addrspace(3) @s to ptr\n  %p = getelementptr i32, ptr %g, i32 4\n"
    "  store i32 1, ptr %p\n  ret void",
    "global": "  %g = addrspacecast ptr %out to ptr addrspace(1)\n"
    "  %p = getelementptr <2 x float>, ptr addrspace(1) %g, i32 32\n"
    "  %v = load <2 x float>, ptr addrspace(1) %p\n  store <2 x float> %v, ptr addrspace(1) %g\n  ret void",
}
GLOBALS = """@c = internal constant [2 x i32] [i32 1, i32 2], align 4
@s = internal addrspace(3) global [4 x i32] undef, align 16"""


@pytest.mark.parametrize("case", OUT_OF_BOUNDS)
def test_out_of_bounds(case: str) -> None:
    with pytest.raises(OutOfBoundsError, match=r"kernel k, block \(0, 0, 0\), thread \(0, 0, 0\)"):
        run(small(OUT_OF_BOUNDS[case], GLOBALS), 1, checked=True)


ALLOWED = {
    "stack": "  %a = alloca [64 x i32]\n  %p = getelementptr i32, ptr %a, i32 %t\n  store volatile i32 1, ptr %p\n"
    "  %v = load volatile i32, ptr %p\n  store i32 %v, ptr %out\n  ret void",
    "constant": "  %v = load i32, ptr getelementptr inbounds (i8, ptr @c, i64 4)\n  store i32 %v, ptr %out\n  ret void",
    "empty copy": "  call void @llvm.memcpy.p0.p0.i64(ptr null, ptr %out, i64 0, i1 false)\n  ret void",
}


@pytest.mark.parametrize("case", ALLOWED)
def test_in_bounds(case: str) -> None:
    run(small(ALLOWED[case], GLOBALS), 64, checked=True)


def test_a_misaligned_access() -> None:
    text = small("  %p = getelementptr i8, ptr %out, i32 %t\n  store i32 1, ptr %p\n  ret void")
    with pytest.raises(MisalignedAccessError, match=r"thread \(1, 0, 0\): a write of 4 bytes"):
        run(text, 8, checked=True)
    run(text.replace("ptr %p\n", "ptr %p, align 1\n"), 8, checked=True)


def test_read_only_memory() -> None:
    out = np.zeros(64, np.int32)
    given = [Memory(out.ctypes.data, out.ctypes.data + out.nbytes, writable=False)]
    with pytest.raises(OutOfBoundsError, match="a write"):
        load(prepare(small(STORE), checked=True)).launch("k", (1, 1, 1), (1, 1, 1), [out.ctypes.data], memory=given)


def test_unwritten_shared_memory_shows() -> None:
    """It has the pattern in every block, whatever the one before left there."""
    body = """  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  %v = load i32, ptr addrspace(3) %p
  store i32 5, ptr addrspace(3) %p
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %o = mul i32 %b, 4
  %i = add i32 %o, %t
  %q = getelementptr i32, ptr %out, i32 %i
  store i32 %v, ptr %q
  ret void"""
    module = load(prepare(small(body, GLOBALS)))
    out = np.zeros(12, np.int32)
    for fill in (0xFF, 0x5A):
        module.launch("k", (3, 1, 1), (4, 1, 1), [out.ctypes.data], fill=fill)
        assert out.tobytes() == bytes([fill]) * out.nbytes


def test_two_writers_of_one_word() -> None:
    text = small("  store i32 %t, ptr addrspace(3) @s\n  ret void", GLOBALS)
    run(text, 1, races=True)
    with pytest.raises(SharedRaceError, match=r"thread \(1, 0, 0\): a write .* which thread \(0, 0, 0\) accessed"):
        run(text, 2, races=True)


def test_a_warp_barrier_orders_lanes_of_one_warp_only() -> None:
    body = """  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 %t, ptr addrspace(3) %p
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  %u = xor i32 %t, DISTANCE
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %u
  %v = load i32, ptr addrspace(3) %q
  %o = getelementptr i32, ptr %out, i32 %t
  store i32 %v, ptr %o
  ret void"""
    text = small(body, "@s = internal addrspace(3) global [64 x i32] undef, align 16")
    for order in ORDERS:
        out = run(text.replace("DISTANCE", "1"), 64, order=order, races=True)
        assert (out.view(np.int32) == np.arange(64) ^ 1).all()
        with pytest.raises(SharedRaceError):
            run(text.replace("DISTANCE", "32"), 64, order=order, races=True)


def test_a_trap_ends_the_launch() -> None:
    text = small(f"{STORE[: STORE.rindex('  ret')]}  %c = icmp eq i32 %t, 2\n  br i1 %c, label %a, label %b\na:\n"
                 "  call void @llvm.trap()\n  unreachable\nb:\n  ret void")  # fmt: skip
    out = np.zeros(8, np.int32)
    module = load(prepare(text))
    with pytest.raises(TrapError, match=r"thread \(2, 0, 0\): reached a trap; in k"):
        module.launch("k", (1, 1, 1), (8, 1, 1), [out.ctypes.data])
    assert out.tolist() == [7, 7, 7, 0, 0, 0, 0, 0]
    module.launch("k", (1, 1, 1), (2, 1, 1), [out.ctypes.data])  # the module is still usable


def test_errors_survive_pickling() -> None:
    with pytest.raises(KernelFaultError) as caught:
        run(small(SKIPS + BARRIER + END), 64)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert type(copied) is DivergentBarrierError
    assert (str(copied), copied.fault) == (str(caught.value), caught.value.fault)


def test_an_unknown_intrinsic_is_refused_by_name() -> None:
    text = small("  %m = call i32 @llvm.nvvm.activemask()\n  ret void", "declare i32 @llvm.nvvm.activemask()")
    with pytest.raises(CompileError, match=r"no llvm\.nvvm\.activemask, which @k calls"):
        prepare(text)


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "arguments", "message"),
    [
        ("none", (1, 1, 1), (1, 1, 1), [0], "no kernel none; there are k"),
        ("k", (0, 1, 1), (1, 1, 1), [0], "a grid of"),
        ("k", (1, 1, 1), (1, 1, 65), [0], "a block of"),
        ("k", (1, 1, 1), (64, 32, 1), [0], "2048 threads"),
        ("k", (1, 1, 1), (1, 1, 1), [], "takes 1 arguments, not 0"),
    ],
)
def test_launches_that_no_gpu_takes(kernel, grid, block, arguments, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        load(prepare(small("  ret void"))).launch(kernel, grid, block, arguments)
