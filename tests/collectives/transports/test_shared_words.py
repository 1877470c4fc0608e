"""What Python publishes and reads in shared memory goes through emitted code, in the declared orders."""

from __future__ import annotations

import ctypes
import re

import pytest

from distxla.collectives.transports.shared_memory.shared_word_functions import emit_shared_access
from distxla.collectives.transports.shared_words import SharedWords
from distxla.runtime.serve import support_program
from distxla.targets.code import CodeModule
from distxla.targets.registry import native_target
from distxla.targets.x86_64 import finish


@pytest.fixture(scope="module")
def shared() -> SharedWords:
    return SharedWords(support_program())


@pytest.mark.parametrize("value", [0, 1, 0x80000001, 0xFFFFFFFF])
def test_a_published_word_is_read(shared: SharedWords, value: int) -> None:
    words = (ctypes.c_uint32 * 3)(7, 7, 7)
    shared.publish(ctypes.addressof(words) + 4, value)
    assert list(words) == [7, value, 7]
    assert shared.read(ctypes.addressof(words) + 4) == value


@pytest.mark.parametrize("value", [0, 1 << 32, 0x8000000000000001, (1 << 64) - 1])
def test_a_published_long_word_is_read(shared: SharedWords, value: int) -> None:
    words = (ctypes.c_uint64 * 3)(7, 7, 7)
    shared.publish_long(ctypes.addressof(words) + 8, value)
    assert list(words) == [7, value, 7]
    assert shared.read_long(ctypes.addressof(words) + 8) == value


def test_the_orders_survive_optimisation() -> None:
    """x86-64 hides them, so they are looked for in what LLVM makes machine code of."""
    module = CodeModule("test", native_target().code)
    emit_shared_access(module)
    parsed = finish.parse(module)
    finish.optimise(parsed)
    found = re.findall(r"(load|store) atomic i(\d+).* (acquire|release), align (\d)", str(parsed))
    assert found == [
        ("load", "32", "acquire", "4"),
        ("store", "32", "release", "4"),
        ("load", "64", "acquire", "8"),
        ("store", "64", "release", "8"),
    ]
