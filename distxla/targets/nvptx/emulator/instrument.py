"""Which memory an instruction of a device module accesses, and the calls that check it."""

from __future__ import annotations

import re

from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.emulator.access import CHECK, CHECK_SHARED
from distxla.targets.nvptx.emulator.layout import ATOMIC, READ, WRITE
from distxla.targets.nvptx.emulator.text import address_space, pointer_operand, read_type, split, stored_bytes

INSTRUCTION = re.compile(r"^  (?:(?P<result>%\S+) = )?(?:(?:tail|musttail|notail) )?(?P<opcode>[a-z]+) (?P<rest>.*)$")
ORDERING = re.compile(r'( syncscope\("[^"]*"\))?( (unordered|monotonic|acquire|release|acq_rel|seq_cst))+$')
ALIGN = re.compile(r"align (\d+)")
COPY = re.compile(r"@llvm\.(memcpy|memmove|memset)(\.inline)?\.\S+?\(")
SHARED, PARAMETERS = 3, 101  # address spaces


@dataclass(frozen=True)
class Access:
    """size: bytes, a number or an i64 value of the text."""

    pointer_type: str
    pointer: str
    size: str
    alignment: int
    kind: int

    @property
    def shared(self) -> bool:
        return address_space(self.pointer_type) == SHARED


def accesses(line: str) -> list[Access]:
    """Of one line of a function's text."""
    found = INSTRUCTION.match(line)
    if found is None:
        return []
    opcode, rest = found["opcode"], found["rest"]
    if opcode == "call":
        return _copy(rest)
    if opcode == "load":
        kind, _ = read_type(_without(rest, "atomic", "volatile"))
        return [_access(split(rest)[1], kind, rest, ATOMIC if rest.startswith("atomic ") else READ)]
    if opcode == "store":
        kind, _ = read_type(_without(rest, "atomic", "volatile"))
        return [_access(split(rest)[1], kind, rest, ATOMIC if rest.startswith("atomic ") else WRITE)]
    if opcode in ("atomicrmw", "cmpxchg"):
        first, second = split(rest)[:2]
        return [_access(first[first.index("ptr") :], read_type(second)[0], rest, ATOMIC)]
    return []


def _without(text: str, *words: str) -> str:
    for word in words:
        text = text.removeprefix(f"{word} ")
    return text


def _access(pointer: str, kind: str, rest: str, access: int) -> Access:
    pointer_type, value = pointer_operand(ORDERING.sub("", pointer))
    alignment = ALIGN.search(", ".join(split(rest)[1:]))
    return Access(pointer_type, value, str(stored_bytes(kind)), int(alignment[1]) if alignment else 1, access)


def _copy(rest: str) -> list[Access]:
    found = COPY.search(rest)
    if found is None:
        return []
    arguments = split(rest[found.end() : rest.rindex(")")])
    kind, size = read_type(arguments[2])
    pointers = [(arguments[0], WRITE)]
    if found[1] != "memset":
        pointers.append((arguments[1], READ))
    result = []
    for text, access in pointers:
        alignment = ALIGN.search(text)
        pointer_type, value = pointer_operand(text)
        result.append(Access(pointer_type, value, f"{kind} {size}", int(alignment[1]) if alignment else 1, access))
    return result


def checks(line: str, site: int, number: int) -> list[str]:
    """The lines that check what a line accesses. number: of the line in the module, for unique names."""
    result = []
    for k, access in enumerate(accesses(line)):
        pointer = access.pointer
        if address_space(access.pointer_type):
            pointer = f"%emulator.{number}.{k}"
            result.append(f"  {pointer} = addrspacecast {access.pointer_type} {access.pointer} to ptr")
        size = access.size
        if size.startswith("i32 "):
            size = f"%emulator.size.{number}.{k}"
            result.append(f"  {size} = zext {access.size} to i64")
        function = CHECK_SHARED if access.shared else CHECK
        arguments = f"ptr {pointer}, i64 {size.removeprefix('i64 ')}, i64 {access.alignment}, i32 {access.kind}"
        result.append(f"  call void @{function}({arguments}, i32 {site})")
    return result
