"""The linker and the loader, on objects that LLVM emits for small functions."""

from __future__ import annotations

import ctypes
import struct

import pytest

from distxla.errors import CompileError
from distxla.program.image import Image
from distxla.targets.native import finish
from distxla.targets.native.load import load_image, resolve_import
from distxla.targets.x86_64.link import link
from tests.targets.link_cases import program


def build(text: str) -> Image:
    return link([finish.emit_object(finish.parse(text))])


CALLS = """
@table = internal constant [4 x i32] [i32 10, i32 20, i32 30, i32 40], align 64
@counter = internal global i32 5
@zeros = internal global [100 x i64] zeroinitializer
declare i64 @strlen(ptr)
declare double @fmod(double, double)
define internal i32 @inner(i32 %i) noinline {
  %p = getelementptr i32, ptr @table, i32 %i
  %v = load i32, ptr %p
  ret i32 %v
}
define i32 @lookup(i32 %i) {
  %v = call i32 @inner(i32 %i)
  ret i32 %v
}
define i32 @count() {
  %old = load i32, ptr @counter
  %new = add i32 %old, 1
  store i32 %new, ptr @counter
  ret i32 %new
}
define i64 @length(ptr %text) {
  %n = call i64 @strlen(ptr %text)
  ret i64 %n
}
define double @remainder(double %a, double %b) {
  %r = call double @fmod(double %a, double %b)
  ret double %r
}
define ptr @address_of_strlen() {
  ret ptr @strlen
}
define ptr @address_of_lookup() {
  ret ptr @lookup
}
define i64 @zero(i64 %i) {
  %p = getelementptr i64, ptr @zeros, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}
"""


@pytest.fixture(scope="module")
def calls() -> Image:
    return build(CALLS)


def function(loaded, name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(loaded.address_of(name))


def test_an_array_without_elements_has_an_address():
    image = build("@none = internal constant [0 x i8] zeroinitializer\ndefine ptr @place() {\n  ret ptr @none\n}\n")
    loaded = load_image(program(image))
    assert function(loaded, "place", ctypes.c_void_p)() - loaded.base < image.code_bytes
    loaded.close()


def test_code_data_and_imports_work_wherever_the_image_lies(calls):
    loads = [load_image(program(calls)) for _ in range(2)]
    for loaded in loads:
        assert [function(loaded, "lookup", ctypes.c_int, ctypes.c_int)(i) for i in range(4)] == [10, 20, 30, 40]
        assert function(loaded, "length", ctypes.c_long, ctypes.c_char_p)(b"seven..") == 7
        assert function(loaded, "remainder", ctypes.c_double, ctypes.c_double, ctypes.c_double)(7.5, 2.0) == 1.5
        assert function(loaded, "zero", ctypes.c_long, ctypes.c_long)(99) == 0
        assert function(loaded, "address_of_strlen", ctypes.c_void_p)() == resolve_import("strlen")
        assert function(loaded, "address_of_lookup", ctypes.c_void_p)() == loaded.address_of("lookup")
        # each load has data of its own
        assert [function(loaded, "count", ctypes.c_int)() for _ in range(2)] == [6, 7]
    assert loads[0].base != loads[1].base
    for loaded in loads:
        loaded.close()
        loaded.close()


def test_layout(calls):
    assert set(calls.imports) == {"strlen", "fmod"}
    assert calls.code_bytes % 4096 == 0
    assert len(calls.data) % 4096 == 0
    assert calls.code_bytes <= calls.imports_offset <= len(calls.data) - 8 * len(calls.imports)
    assert calls.imports_offset % 8 == 0
    assert "inner" not in calls.symbols
    assert {"lookup", "count", "length"} <= set(calls.symbols)


def test_no_page_is_writable_and_executable(calls):
    loaded = load_image(program(calls))
    try:
        with open("/proc/self/maps") as maps:
            rows = [line.split() for line in maps]
        modes = [
            row[1]
            for row in rows
            if int(row[0].split("-")[0], 16) < loaded.base + len(calls.data)
            and loaded.base < int(row[0].split("-")[1], 16)
        ]
        assert len(modes) >= 2
        assert not [mode for mode in modes if "w" in mode and "x" in mode]
    finally:
        loaded.close()


def test_unknown_import_is_named(calls):
    broken = build("declare void @no_such_function()\ndefine void @f() { call void @no_such_function()\n ret void }")
    with pytest.raises(CompileError, match="no_such_function"):
        load_image(program(broken))


def test_absolute_addresses_are_refused():
    with pytest.raises(CompileError, match="absolute address"):
        build("define void @f() { ret void }\n@pointer = global ptr @f")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda obj: b"MZ" + obj[2:], "no ELF object"),
        (lambda obj: obj[:18] + struct.pack("<H", 183) + obj[20:], "ELF machine 183"),
    ],
)
def test_other_objects_are_refused(change, message):
    obj = finish.emit_object(finish.parse("define void @f() { ret void }"))
    with pytest.raises(CompileError, match=message):
        link([change(obj)])


def test_switch_tables_and_vector_constants():
    """LLVM's own read-only tables (jump tables, constant pools) are position-independent, too."""
    cases = "\n".join(f"  i32 {k}, label %c{k}" for k in range(12))
    blocks = "\n".join(f"c{k}:\n  call void @effect(i32 {k * k + 7})\n  br label %done" for k in range(12))
    image = build(
        f"""
@seen = internal global i32 0
define internal void @effect(i32 %v) noinline {{
  store volatile i32 %v, ptr @seen
  ret void
}}
define i32 @choose(i32 %k) {{
  switch i32 %k, label %done [
{cases}
  ]
{blocks}
done:
  %v = load volatile i32, ptr @seen
  ret i32 %v
}}
define double @half(double %x) {{
  %y = fmul double %x, 0.5
  ret double %y
}}
"""
    )
    loaded = load_image(program(image))
    choose = function(loaded, "choose", ctypes.c_int, ctypes.c_int)
    assert [choose(k) for k in range(12)] == [k * k + 7 for k in range(12)]
    assert function(loaded, "half", ctypes.c_double, ctypes.c_double)(3.0) == 1.5
    loaded.close()


def test_openblas_is_found():
    assert resolve_import("scipy_cblas_sgemm") != 0
