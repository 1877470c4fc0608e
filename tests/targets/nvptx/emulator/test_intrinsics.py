"""Each intrinsic against PTX's rule for it, written in Python a second time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from distxla.targets.nvptx.emulator.intrinsics import INTRINSICS
from distxla.targets.nvptx.emulator.launch import ORDERS, LoadedModule, Memory, Order, load, shuffled
from distxla.targets.nvptx.emulator.prepare import prepare
from tests.targets.nvptx.emulator import kernels

LANES = 32
ALL = 0xFFFFFFFF
UNKNOWN = -1  # what a lane outside of the mask gives


def kernel(intrinsic: str, operands: str) -> str:
    """out[thread] = the intrinsic's result, as i32; a thread's operands are in[thread], and `mask`, `b` and `c`."""
    known = INTRINSICS[intrinsic]
    result = str(known.result)
    signature = f"{result} @{intrinsic}({', '.join(map(str, known.parameters))})"
    declared = "" if f"@{intrinsic}(" in kernels.HEADER else f"declare {signature}"
    widen = {"i32": "%r = add i32 %v, 0", "i1": "%r = zext i1 %v to i32", "float": "%r = bitcast float %v to i32"}
    return f"""{kernels.HEADER}
{declared}
define ptx_kernel void @k(ptr %in, ptr %out, i32 %mask, i32 %b, i32 %c, i32 %width) convergent {{
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %y = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %row = mul i32 %y, %width
  %t = add i32 %row, %x
  %place = getelementptr i32, ptr %in, i32 %t
  %given = load i32, ptr %place
  %float = bitcast i32 %given to float
  %odd = trunc i32 %given to i1
  %bit = lshr i32 %mask, %x
  %joins = trunc i32 %bit to i1
  br i1 %joins, label %do, label %end
do:
  %v = call {result} @{intrinsic}({operands})
  {widen[result]}
  %q = getelementptr i32, ptr %out, i32 %t
  store i32 %r, ptr %q
  br label %end
end:
  ret void
}}
"""


@cache
def loaded(intrinsic: str, operands: str) -> LoadedModule:
    return load(prepare(kernel(intrinsic, operands)))


def launch(
    intrinsic: str, operands: str, given: np.ndarray, mask: int = ALL, b: int = 0, c: int = 0, order: Order = ORDERS[0]
) -> np.ndarray:
    """One warp a row of `given`."""
    out = np.full_like(given, 77)
    arguments = [given.ctypes.data, out.ctypes.data, mask, b, c, LANES]
    loaded(intrinsic, operands).launch("k", (1, 1, 1), (LANES, len(given), 1), arguments, order=order)
    return out


GIVEN = np.random.default_rng(1).integers(-(2**31), 2**31, (3, LANES), dtype=np.int32)


def shuffle(mode: str, values: list[int], mask: int, b: int, c: int) -> list[int]:
    """The pseudocode of PTX for `shfl.sync`."""
    result = []
    segment, clamp, offset = c >> 8 & 31, c & 31, b & 31
    for lane in range(LANES):
        low, high = lane & segment, (lane & segment) | (clamp & ~segment & 31)
        source = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": low | (offset & ~segment)}[
            mode
        ]
        if not (source >= high if mode == "up" else source <= high):
            source = lane
        result.append(values[source] if mask >> source & 1 else UNKNOWN)
    return result


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("kind", ["i32", "f32"])
def test_shuffles(mode: str, kind: str) -> None:
    operands = f"i32 %mask, {'i32 %given' if kind == 'i32' else 'float %float'}, i32 %b, i32 %c"
    source = np.random.default_rng(2)
    for round_ in range(40):
        b, width = int(source.integers(32)), 1 << int(source.integers(6))
        c = (32 - width) << 8 | (0 if mode == "up" else 31)
        mask = ALL if round_ % 2 else int(source.integers(1, 1 << 32))
        found = launch(f"llvm.nvvm.shfl.sync.{mode}.{kind}", operands, GIVEN, mask, b, c, shuffled(round_))
        for row, values in zip(found, GIVEN):
            expected = shuffle(mode, values.tolist(), mask, b, c)
            assert row.tolist() == [v if mask >> lane & 1 else 77 for lane, v in enumerate(expected)]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_votes(order: Order) -> None:
    patterns = np.array([[0] * 32, [1] * 32, [1] * 31 + [0], [k % 3 for k in range(32)]], np.int32)
    for mask in (ALL, 0x7FFFFFFF, 0x00010002, 0x80000000):
        for combine in ("ballot", "all", "any", "uni"):
            found = launch(f"llvm.nvvm.vote.{combine}.sync", "i32 %mask, i1 %odd", patterns, mask, order=order)
            for row, values in zip(found, patterns & 1):
                votes = {lane: bool(values[lane]) for lane in range(LANES) if mask >> lane & 1}
                expected = {
                    "ballot": sum(vote << lane for lane, vote in votes.items()),
                    "all": all(votes.values()),
                    "any": any(votes.values()),
                    "uni": len(set(votes.values())) == 1,
                }[combine]
                assert {int(np.uint32(row[lane])) for lane in votes} == {int(expected)}


LANE_REGISTERS = {
    "laneid": lambda lane: lane,
    "warpsize": lambda lane: 32,
    "lanemask.eq": lambda lane: 1 << lane,
    "lanemask.lt": lambda lane: (1 << lane) - 1,
    "lanemask.le": lambda lane: (2 << lane) - 1,
    "lanemask.gt": lambda lane: ALL - ((2 << lane) - 1),
    "lanemask.ge": lambda lane: ALL - ((1 << lane) - 1),
}


@pytest.mark.parametrize("name", LANE_REGISTERS)
def test_registers_of_lanes(name: str) -> None:
    found = launch(f"llvm.nvvm.read.ptx.sreg.{name}", "", GIVEN)
    assert found.astype(np.uint32).tolist() == [[LANE_REGISTERS[name](lane) for lane in range(LANES)]] * 3


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_coordinates(order: Order) -> None:
    """Each of 12 threads of 24 blocks writes its twelve numbers once, where its own numbers say."""
    names = [f"{which}.{axis}" for which in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    lines, declared = [], {*kernels.HEADER.splitlines()}
    for name in names:
        lines.append(f"  %{name} = call i32 @llvm.nvvm.read.ptx.sreg.{name}()")
        declared.add(f"declare i32 @llvm.nvvm.read.ptx.sreg.{name}()")
    flat = ["  %n0 = add i32 0, 0"]
    for k, (which, size, axis) in enumerate(
        (a, b, c) for a, b in (("ctaid", "nctaid"), ("tid", "ntid")) for c in "zyx"
    ):
        flat += [f"  %m{k} = mul i32 %n{k}, %{size}.{axis}", f"  %n{k + 1} = add i32 %m{k}, %{which}.{axis}"]
    for k, name in enumerate(names):
        flat += [
            f"  %p{k} = getelementptr [12 x i32], ptr %out, i32 %n6, i32 {k}",
            f"  %old{k} = load i32, ptr %p{k}",
            f"  %new{k} = add i32 %old{k}, %{name}",
            f"  store i32 %new{k}, ptr %p{k}",
        ]
    body = "\n".join([*lines, *flat])
    header = "\n".join(sorted(declared, key=lambda line: line.startswith("declare")))
    text = f"{header}\ndefine ptx_kernel void @k(ptr %out) {{\n{body}\n  ret void\n}}\n"
    grid, block = (4, 3, 2), (2, 3, 2)
    out = np.zeros((2, 3, 4, 2, 3, 2, 12), np.int32)
    memory = [Memory(out.ctypes.data, out.ctypes.data + out.nbytes)]
    load(prepare(text, checked=True)).launch("k", grid, block, [out.ctypes.data], order=order, memory=memory)
    bz, by, bx, tz, ty, tx = np.indices(out.shape[:-1])
    sizes = [np.full(out.shape[:-1], size) for size in (*block, *grid)]
    assert (out == np.stack([tx, ty, tz, *sizes[:3], bx, by, bz, *sizes[3:]], axis=-1)).all()


PASSED = {"i8": -3, "i32": -7, "i64": 1 << 40, "float": 1.5, "double": -0.1, "ptr": 0, "ptr addrspace(1)": 0}


def test_parameters_of_each_kind() -> None:
    """Each is stored into a slot of 8 bytes of `out`."""
    parameters = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(PASSED))
    stores = "\n".join(
        f"  %p{k} = getelementptr i64, ptr %out, i32 {k}\n  store {kind} %a{k}, ptr %p{k}"
        for k, kind in enumerate(PASSED)
    )
    text = f"{kernels.HEADER}\ndefine ptx_kernel void @k(ptr %out, {parameters}) {{\n{stores}\n  ret void\n}}\n"
    out = np.zeros((len(PASSED), 8), np.uint8)
    for mode in ({}, {"checked": True}):
        out[:] = 0
        memory = [Memory(out.ctypes.data, out.ctypes.data + out.nbytes)]
        module = load(prepare(text, **mode))
        module.launch("k", (1, 1, 1), (1, 1, 1), [out.ctypes.data, *PASSED.values()], memory=memory)
        types = {"i8": np.int8, "i32": np.int32, "float": np.float32, "double": np.float64}
        found = {kind: row.view(types.get(kind, np.int64))[0] for kind, row in zip(PASSED, out)}
        assert found == {kind: types.get(kind, np.int64)(value) for kind, value in PASSED.items()}


def test_address_spaces_are_one_memory() -> None:
    """Constants, variables and stack arrays in address spaces of their own."""
    text = f"""{kernels.HEADER}
@c = internal addrspace(4) constant [2 x i32] [i32 40, i32 2], align 4
@g = internal addrspace(1) global i32 100, align 4
define ptx_kernel void @k(ptr %out) {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %local = alloca [4 x i32], align 4, addrspace(5)
  %p = getelementptr i32, ptr addrspace(4) @c, i32 %t
  %v = load i32, ptr addrspace(4) %p
  %s = getelementptr i32, ptr addrspace(5) %local, i32 %t
  store volatile i32 %v, ptr addrspace(5) %s
  %w = load volatile i32, ptr addrspace(5) %s
  %old = load i32, ptr addrspace(1) @g
  %new = add i32 %old, %w
  store i32 %new, ptr addrspace(1) @g
  %q = getelementptr i32, ptr %out, i32 %t
  store i32 %new, ptr %q
  ret void
}}
"""
    for mode in ({}, {"checked": True}):
        out = np.zeros(2, np.int32)
        memory = [Memory(out.ctypes.data, out.ctypes.data + out.nbytes)]
        module = load(prepare(text, **mode))
        module.launch("k", (1, 1, 1), (2, 1, 1), [out.ctypes.data], memory=memory)
        assert out.tolist() == [140, 142]
        module.launch("k", (1, 1, 1), (2, 1, 1), [out.ctypes.data], memory=memory)  # variables keep their values
        assert out.tolist() == [182, 184]


@dataclass(frozen=True)
class Product:
    """PTX's table of which element is whose. sizes: rows, columns, terms.  left, right, sums: the (row, term), (term,
    column) and (row, column) of what lane l has, by g = l / 4 and q = l % 4, in order."""

    intrinsic: str
    word: str
    sum_type: str
    sizes: tuple[int, int, int]
    left: Callable[[int, int], list[tuple[int, int]]]
    right: Callable[[int, int], list[tuple[int, int]]]
    sums: Callable[[int, int], list[tuple[int, int]]]


def product_of_16_bits(intrinsic: str, word: str) -> Product:
    return Product(
        intrinsic,
        word,
        "float",
        (16, 8, 16),
        lambda g, q: [(g + (8 if i in (2, 3, 6, 7) else 0), 2 * q + i % 2 + (8 if i >= 4 else 0)) for i in range(8)],
        lambda g, q: [(2 * q + i % 2 + (8 if i >= 2 else 0), g) for i in range(4)],
        lambda g, q: [(g + (8 if i >= 2 else 0), 2 * q + i % 2) for i in range(4)],
    )


PRODUCTS = {  # by the factors' type
    ml_dtypes.bfloat16: product_of_16_bits("llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"),
    np.float16: product_of_16_bits("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"),
    np.float64: Product(
        "llvm.nvvm.mma.m8n8k4.row.col.f64",
        "double",
        "double",
        (8, 8, 4),
        lambda g, q: [(g, q)],
        lambda g, q: [(q, g)],
        lambda g, q: [(g, 2 * q), (g, 2 * q + 1)],
    ),
}


def product_kernel(intrinsic: str, word: str, words: int, sum_type: str, sums: int) -> str:
    """A lane's words are at in + (lane << 6), its sums, the old and the new ones, at out + (lane << 6)."""
    result = f"{{{', '.join([sum_type] * sums)}}}"
    loads = "\n".join(
        f"  %{name}p{k} = getelementptr {kind}, ptr %{name}, i32 {k}\n"
        f"  %{name}{k} = load {kind}, ptr %{name}p{k}, align 4"
        for name, kind, count in (("in", word, words), ("out", sum_type, sums))
        for k in range(count)
    )
    stores = "\n".join(
        f"  %r{k} = extractvalue {result} %new, {k}\n  store {sum_type} %r{k}, ptr %outp{k}" for k in range(sums)
    )
    kinds = [word] * words + [sum_type] * sums
    names = [f"%in{k}" for k in range(words)] + [f"%out{k}" for k in range(sums)]
    arguments = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
    return f"""{kernels.HEADER}
declare {result} @{intrinsic}({", ".join(kinds)})
define ptx_kernel void @k(ptr %ins, ptr %outs) convergent {{
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %at = shl i32 %x, 6
  %in = getelementptr i8, ptr %ins, i32 %at
  %out = getelementptr i8, ptr %outs, i32 %at
{loads}
  %new = call {result} @{intrinsic}({arguments})
{stores}
  ret void
}}
"""


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_matrix_products(kind: Any, order: Order) -> None:
    product = PRODUCTS[kind]
    rows, columns, terms = product.sizes
    of_sums = {"float": np.float32, "double": np.float64}[product.sum_type]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, terms)).astype(kind), rng.standard_normal((terms, columns)).astype(kind)
    c = rng.standard_normal((rows, columns)).astype(of_sums)
    given, sums = np.zeros((LANES, 64), np.uint8), np.zeros((LANES, 64), np.uint8)
    factors: list[Any] = []
    for lane in range(LANES):
        place = lane // 4, lane % 4
        factors = [a[at] for at in product.left(*place)] + [b[at] for at in product.right(*place)]
        _put(given[lane], np.array(factors, kind))
        _put(sums[lane], np.array([c[at] for at in product.sums(*place)], of_sums))
    words = len(factors) * np.dtype(kind).itemsize // {"double": 8}.get(product.word, 4)
    count = len(product.sums(0, 0))
    load(prepare(product_kernel(product.intrinsic, product.word, words, product.sum_type, count))).launch(
        "k", (1, 1, 1), (LANES, 1, 1), [given.ctypes.data, sums.ctypes.data], order=order
    )
    wanted = c + a.astype(np.float64) @ b.astype(np.float64)
    found = np.zeros((rows, columns))
    for lane in range(LANES):
        for at, value in zip(product.sums(lane // 4, lane % 4), sums[lane].view(of_sums)):
            found[at] = value
    tolerance = {"float": 1e-6, "double": 1e-14}[product.sum_type]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def _put(row: np.ndarray, values: np.ndarray) -> None:
    row[: values.nbytes] = values.view(np.uint8)
