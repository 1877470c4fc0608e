"""Pieces of LLVM's own text of a module: types, operands, and their sizes."""

from __future__ import annotations

import re

from distxla.errors import CompileError

OPENING, CLOSING = "([{<", ")]}>"
BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64, "fp128": 128}
SPACE = re.compile(r"( addrspace\(\d+\))?")
ATTRIBUTE = re.compile(r" (?:align \d+|[a-z_]+\([^()]*\)|no[a-z]+|readonly|writeonly|readnone)(?= )")


def split(text: str) -> list[str]:
    """At the commas that no bracket encloses."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in OPENING:
            depth += 1
        elif letter in CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def enclosed(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        letter = text[at]
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in OPENING:
            depth += 1
        elif letter in CLOSING:
            depth -= 1
            if depth == 0:
                return at + 1
    raise CompileError(f"no closing bracket in {text!r}")


def read_type(text: str) -> tuple[str, str]:
    """The type at the beginning of some text, and what follows."""
    text = text.lstrip()
    end = enclosed(text, 0) if text[0] in OPENING else re.match(r"[^\s,()]+", text).end()  # type: ignore[union-attr]
    if text[:end] == "ptr":
        end = SPACE.match(text, end).end()  # type: ignore[union-attr]
    return text[:end], text[end:].lstrip()


def address_space(pointer: str) -> int:
    """Of a pointer type."""
    found = re.search(r"addrspace\((\d+)\)", pointer)
    return int(found[1]) if found else 0


def stored_bytes(kind: str) -> int:
    """What a load or a store of a value moves."""
    return (_bits(kind) + 7) // 8


def _bits(kind: str) -> int:
    if kind.startswith("ptr"):
        return 64
    if kind in BITS:
        return BITS[kind]
    if re.fullmatch(r"i\d+", kind):
        return int(kind[1:])
    if found := re.fullmatch(r"([<\[])(\d+) x (.*)[>\]]", kind):
        bits = _bits(found[3])
        return int(found[2]) * (bits if found[1] == "<" else (bits + 7) // 8 * 8)
    if members := re.fullmatch(r"(<?)\{ (.*) \}>?", kind):
        size = 0
        for member in split(members[2]):
            alignment = 8 if members[1] else _aligned(member)
            size = (size + alignment - 1) // alignment * alignment + 8 * stored_bytes(member)
        alignment = 8 if members[1] else _aligned(kind)
        return (size + alignment - 1) // alignment * alignment
    raise CompileError(f"the emulator has no size for the LLVM type {kind}")


def _aligned(kind: str) -> int:
    """Bits to which the place of a member is rounded up."""
    if members := re.fullmatch(r"\{ (.*) \}", kind):
        return max(_aligned(member) for member in split(members[1]))
    if found := re.fullmatch(r"\[\d+ x (.*)\]", kind):
        return _aligned(found[1])
    if kind.startswith("<{"):
        return 8
    return max(8, 1 << (_bits(kind) - 1).bit_length())


def pointer_operand(text: str) -> tuple[str, str]:
    """The type and the value of a pointer argument, without attributes."""
    kind, rest = read_type(text)
    rest = " " + rest
    while found := ATTRIBUTE.match(rest):
        rest = rest[found.end() :]
    return kind, rest.strip()
