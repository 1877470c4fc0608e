"""The plugin's own machine code is made once, and found in the cache by other processes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from distxla.jax.pjrt.kept_code import loaded
from distxla.jax.pjrt.native_calls import NativeCalls
from tests.jax.pjrt.scripts import ROOT

TEXT = """
@distxla_test_number = external global i64
declare i64 @distxla_test_more(i64)
define i64 @found(i64 %x) {
  %y = load i64, ptr @distxla_test_number
  %z = add i64 %x, %y
  %w = call i64 @distxla_test_more(i64 %z)
  ret i64 %w
}
"""
TEXTS = """
import hashlib
from distxla.jax.pjrt import kept_code
texts = []
real = kept_code.loaded
def noted(text, addresses):
    texts.append(text)
    return real(text, addresses)
from distxla.jax.pjrt import native_functions, plugin, stubs
native_functions.loaded = stubs.loaded = noted
plugin.Table()
assert len(texts) == 2
print(hashlib.sha256("".join(texts).encode()).hexdigest())
"""


def value(number: int) -> int:
    """By code that reads a number and calls a function of this process."""
    more = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 2 * x)
    place = ctypes.c_int64(number)
    function = ctypes.cast(more, ctypes.c_void_p).value
    assert function is not None
    engine = loaded(TEXT, {"distxla_test_number": ctypes.addressof(place), "distxla_test_more": function})
    found = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("found"))
    return int(found(1))


def no_compiler(text: str) -> None:
    raise AssertionError(f"compiled: {text}" if text else "")


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))
    assert value(3) == 8
    (entry,) = tmp_path.rglob("*.program")
    parse = binding.parse_assembly
    monkeypatch.setattr(binding, "parse_assembly", lambda text: no_compiler(text) if text else parse(text))
    assert value(5) == 12, "at another address"
    entry.write_bytes(entry.read_bytes()[:-8] + bytes(8))
    with pytest.raises(AssertionError, match="compiled"):
        value(3)


@pytest.mark.parametrize("setting", [("DISTXLA_CACHE_SIZE", "0"), ("DISTXLA_CACHE_SIZE", "many")])
def test_without_a_cache_it_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str]
) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(*setting)
    assert value(3) == 8
    assert not [*tmp_path.rglob("*.program")]


def test_the_text_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", TEXTS]
    found = {
        subprocess.run(
            command,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert str(NativeCalls().module) == str(NativeCalls().module)
