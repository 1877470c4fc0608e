"""Python reaches shared words by `SharedWords` only, which chooses the access by the word's declaration."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import distxla
from distxla.collectives.protocols import (
    channel,
    control_block,
    group,
    launch_board,
    permute,
    proxy_queue,
    rounds,
    stream,
)
from distxla.collectives.protocols.layout import Word
from distxla.collectives.transports import shared_words

PACKAGE = Path(distxla.__file__).parent
ACCESS = Path(shared_words.__file__).resolve()
# areas that no other process sees, and copies of records
PRIVATE = {"collectives/transports/tcp/addressed_round.py", "distxla/runtime/calls/dispatch.py"}
WORDS = {
    name
    for module in (channel, control_block, group, launch_board, permute, proxy_queue, rounds, stream)
    for name, value in vars(module).items()
    if isinstance(value, Word)
}
VIEWS = ("words", "longs", "_words", "_longs")  # of the memory as u32 and u64
BY_ADDRESS = {"string_at", "memmove", "from_address", "from_buffer", "frombuffer", "view", "rows_at"}
BLOCK = "_base"  # the address of a control block
# Every raw access, as the formatter writes it, has one of these; most files have none, and parsing all takes 2 s.
PARTS = ("words[", "longs[", ".cast(", "ndarray(", BLOCK, *sorted(WORDS))


def files() -> list[Path]:
    found = {path.resolve() for path in PACKAGE.rglob("*.py")}
    for linked in ("collectives", "scheduler"):
        found |= {path.resolve() for path in (PACKAGE / linked).resolve().rglob("*.py")}
    return sorted(path for path in found - {ACCESS} if not str(path).endswith(tuple(PRIVATE)))


def names(node: ast.AST) -> set[str]:
    """All names and attributes in an expression."""
    return {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in ast.walk(node)}


def is_by_address(call: ast.Call) -> bool:
    """Whether a call reads or views memory at a word's offset or in a control block, or as an array over a buffer."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if called == "ndarray":
        return len(call.args) > 2 or any(keyword.arg == "buffer" for keyword in call.keywords)
    return called in BY_ADDRESS and bool(set().union(*map(names, arguments)) & (WORDS | {BLOCK}))


def raw_accesses(text: str) -> list[int]:
    """The lines of a file that reach memory by a word's offset, or by the words of a control block."""
    found: list[int] = []
    if not any(part in text for part in PARTS):
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Subscript):
            is_view = isinstance(node.value, ast.Attribute) and node.value.attr in VIEWS
            if is_view or (isinstance(node.slice, ast.BinOp | ast.Slice) and names(node.slice) & WORDS):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cast":
            kinds = [getattr(argument, "value", "") for argument in node.args]
            found += [node.lineno] * (kinds in (["I"], ["Q"]))
        elif isinstance(node, ast.Call) and is_by_address(node):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    ("line", "is_raw"),
    [
        ("block.words[control.H_ABORT // 4] = 1", True),
        ("self._longs[place // 8]", True),
        ("view[at + R_STATE : at + R_STATE + 4]", True),
        ("memory.cast('I')", True),
        ("block.load(control.H_ABORT)", False),
        ("rows[device]", False),
        ("memory.cast('B')", False),
        ("ctypes.string_at(self._base + place, 16)", True),
        ("ctypes.string_at(address + M_SITE, 4)", True),
        ("view(base + permute_words.M_PAYLOAD, size)", True),
        ("np.frombuffer(memory, np.uint64, 2, at + S_SIGNATURE)", True),
        ("np.ndarray((2, 2), np.uint64, memory, at)", True),
        ("np.ndarray((2, 2), buffer=memory)", True),
        ("np.ndarray((2, 2), np.uint64)", False),
        ("view(address + offset, size)", False),
        ("block.payload(permute_words.M_PAYLOAD, size)", False),
    ],
)
def test_raw_accesses_are_found(line: str, is_raw: bool) -> None:
    assert bool(raw_accesses(line)) is is_raw


def test_words_and_files_are_found() -> None:
    assert {"H_ABORT", "R_STATE", "W_TAKEN", "E_PHASE", "P_READY", "T_POSTED", "Q_ENTRY"} <= WORDS
    assert len(files()) > 450


def test_no_file_indexes_the_raw_words() -> None:
    """Where this fails: `load`, `store` or `reset` of the control block, with the word as it is declared."""
    assert [f"{path}:{line}" for path in files() for line in raw_accesses(path.read_text())] == []
