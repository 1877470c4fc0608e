"""Object code of functions that programs share is made once, in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.compiler import common_objects
from distxla.compiler.cache_folder import CacheFolder
from distxla.compiler.common_objects import common_object


class Code:
    """A target that says what it compiles."""

    name = "a processor"

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def parse(self, text: str) -> Any:
        self.compiled.append(text)
        return SimpleNamespace(text=text)

    def optimise(self, parsed: Any) -> None:
        parsed.text += " optimised"

    def emit_object(self, parsed: Any) -> bytes:
        return str(parsed.text).encode()


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Code:
    monkeypatch.setattr(common_objects, "kept", common_objects.OrderedDict())
    return Code()


@pytest.fixture
def files(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache", 1 << 20)


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_objects, "kept", common_objects.OrderedDict())


def test_a_text_is_compiled_once(code: Code) -> None:
    for _ in range(3):
        assert common_object("wait", code, None) == b"wait optimised"  # type: ignore[arg-type]
    assert code.compiled == ["wait"]


def test_another_process_finds_it_on_disk(code: Code, files: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    common_object("wait", code, files)  # type: ignore[arg-type]
    another_process(monkeypatch)
    assert common_object("wait", code, files) == b"wait optimised"  # type: ignore[arg-type]
    assert code.compiled == ["wait"]


def test_without_a_folder_another_process_compiles_it(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    common_object("wait", code, None)  # type: ignore[arg-type]
    another_process(monkeypatch)
    common_object("wait", code, None)  # type: ignore[arg-type]
    assert code.compiled == ["wait", "wait"]


def test_a_damaged_entry_is_compiled_again(code: Code, files: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    common_object("wait", code, files)  # type: ignore[arg-type]
    (entry,) = files.path.glob("*.program")
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    another_process(monkeypatch)
    assert common_object("wait", code, files) == b"wait optimised"  # type: ignore[arg-type]
    assert code.compiled == ["wait", "wait"]


@pytest.mark.parametrize("change", ["text", "target"])
def test_another_text_or_target_is_another_object(code: Code, files: CacheFolder, change: str) -> None:
    common_object("wait", code, files)  # type: ignore[arg-type]
    other = Code()
    other.name = code.name if change == "text" else "another processor"
    text = "wake" if change == "text" else "wait"
    assert common_object(text, other, files) == f"{text} optimised".encode()  # type: ignore[arg-type]
    assert other.compiled == [text]


def test_the_least_recently_used_leave_memory(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_objects, "MEMORY_BYTES", 40)  # two of 18 bytes
    for text in ("wait", "wake", "wait", "send", "wait", "wake"):
        common_object(text, code, None)  # type: ignore[arg-type]
    assert code.compiled == ["wait", "wake", "send", "wake"]
    assert common_object("a long one" * 9, code, None) == b"a long one" * 9 + b" optimised"  # type: ignore[arg-type]
