"""Atomic accesses of Python: they access whole words, and are the instructions that LLVM makes of each order."""

from __future__ import annotations

import ctypes

import pytest

from distxla.targets.native import finish
from distxla.targets.registry import atomics
from distxla.targets.x86_64.link import link
from distxla.targets.x86_64.traits import ATOMICS

ORDERS = {
    "read": "%v = load atomic i32, ptr %p acquire, align 4\n ret i32 %v",
    "publish": "store atomic i32 %v, ptr %p release, align 4\n ret void",
    "publish_fenced": "store atomic i32 %v, ptr %p seq_cst, align 4\n ret void",
    "read_long": "%v = load atomic i64, ptr %p acquire, align 8\n ret i64 %v",
    "publish_long": "store atomic i64 %v, ptr %p release, align 8\n ret void",
    "read_long_fenced": "%v = load atomic i64, ptr %p seq_cst, align 8\n ret i64 %v",
    "compare_exchange_long": "%f = cmpxchg ptr %p, i64 %v, i64 %w seq_cst seq_cst, align 8\n"
    " %o = extractvalue { i64, i1 } %f, 0\n ret i64 %o",
    "fence": "fence acquire\n ret void",
}


@pytest.mark.parametrize("name", ["publish", "publish_fenced"])
@pytest.mark.parametrize("value", [0, 1, 0x80000001, 0xFFFFFFFF])
def test_a_published_word_is_read(name: str, value: int) -> None:
    words = (ctypes.c_uint32 * 3)(7, 7, 7)
    getattr(atomics(), name)(ctypes.addressof(words) + 4, value)
    assert list(words) == [7, value, 7]
    assert atomics().read(ctypes.addressof(words) + 4) == value


@pytest.mark.parametrize("value", [0, 1 << 32, 0x8000000000000001, (1 << 64) - 1])
def test_a_published_long_word_is_read(value: int) -> None:
    words = (ctypes.c_uint64 * 3)(7, 7, 7)
    atomics().publish_long(ctypes.addressof(words) + 8, value)
    assert list(words) == [7, value, 7]
    assert atomics().read_long(ctypes.addressof(words) + 8) == value


@pytest.mark.parametrize("value", [0, 1 << 32, 0x8000000000000001, (1 << 64) - 1])
def test_a_long_word_is_exchanged_where_it_is_what_was_expected(value: int) -> None:
    words = (ctypes.c_uint64 * 3)(7, 7, 7)
    place = ctypes.addressof(words) + 8
    assert atomics().compare_exchange_long(place, 7, value) == 7
    assert atomics().compare_exchange_long(place, value ^ 1, 9) == value
    assert list(words) == [7, value, 7]
    assert atomics().read_long_fenced(place) == value


def test_each_access_has_an_order() -> None:
    assert list(ORDERS) == list(ATOMICS) == list(atomics()._fields)


@pytest.mark.parametrize("name", ORDERS)
def test_the_instructions_are_those_of_the_order(name: str) -> None:
    kind = "i64" if "long" in name else "i32"
    head = f"{kind} @f(ptr %p)" if name.startswith("read") else f"void @f(ptr %p, {kind} %v)"
    if name.startswith("compare"):
        head = f"{kind} @f(ptr %p, {kind} %v, {kind} %w)"
    image = link([finish.emit_object(finish.parse(f"define {head} {{\n {ORDERS[name]}\n}}"))])
    begin = image.symbols["f"]
    assert image.data[begin : begin + len(ATOMICS[name])] == ATOMICS[name]
