"""A linker: ELF relocatable files in, position-independent image out. A target's folder adds its instruction set.

The image is a block of bytes that works at any page-aligned address without being changed: code and read-only data
first, then writable data with the import slots. External functions are reached through the slots, which the loader
fills with addresses; a call goes through a stub, which jumps to the address in its slot.

The output of this project's compiler needs no more: no dynamic loader, no thread-local storage, no
absolute addresses. Anything else is a CompileError that names it.
"""

from __future__ import annotations

import platform
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from distxla.errors import CompileError
from distxla.lazy_dataclass import dataclass
from distxla.program.image import Image

SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 2, 4, 8
SHF_WRITE, SHF_ALLOC, SHF_TLS = 1, 2, 0x400
SHN_UNDEF, SHN_ABS, SHN_COMMON = 0, 0xFFF1, 0xFFF2
HIDDEN = 2  # visibility
UNWIND = ".eh_frame"  # nothing unwinds through a program: dropped


@dataclass
class Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int
    address: int = -1  # in the image; -1: not part of it


@dataclass(frozen=True)
class Symbol:
    name: str
    section: int
    value: int
    is_global: bool
    kind: int
    is_hidden: bool


class Object:
    """An object file as it is read."""

    def __init__(self, data: bytes, machine: int, named: str) -> None:
        """machine: ELF's number of the processor.  named: the processor, in messages."""
        if data[:4] != b"\x7fELF":
            raise CompileError(f"the compiler's output is no ELF object (on {platform.system()})")
        kind, found = struct.unpack_from("<HH", data, 16)
        if data[4] != 2 or data[5] != 1 or found != machine or kind != 1:
            raise CompileError(
                f"only {named} objects can be linked; this one is for ELF machine {found} ({platform.machine()})"
            )
        self.data = data
        self.sections = self._read_sections()
        self.symbols = self._read_symbols()
        # with the sections that they change
        self.relocations = [
            (section, self.sections[section.info])
            for section in self.sections
            if section.kind == SHT_RELA and is_loaded(self.sections[section.info])
        ]

    def _read_sections(self) -> list[Section]:
        (table,) = struct.unpack_from("<Q", self.data, 0x28)
        entry_size, count, names = struct.unpack_from("<HHH", self.data, 0x3A)
        if count == 0:  # more than 65279 sections: the count is in the first one
            (count,) = struct.unpack_from("<Q", self.data, table + 32)
        rows = [struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * entry_size) for i in range(count)]
        if names == 0xFFFF:
            names = rows[0][6]
        strings = rows[names][4]
        return [
            Section(self._string(strings + name), kind, flags, offset, size, link_, info, alignment, entry)
            for name, kind, flags, _, offset, size, link_, info, alignment, entry in rows
        ]

    def _string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def _read_symbols(self) -> list[Symbol]:
        for section in self.sections:
            if section.kind == SHT_SYMTAB:
                strings = self.sections[section.link].offset
                return [
                    Symbol(self._string(strings + name), index, value, info >> 4 != 0, info & 15, other & 3 == HIDDEN)
                    for name, info, other, index, value, _ in struct.iter_unpack(
                        "<IBBHQQ", self.data[section.offset : section.offset + section.size]
                    )
                ]
        return []

    def rows(self, table: Section) -> list[tuple[int, int, int, int]]:
        """(offset in the target section, type, symbol number, addend)."""
        data = self.data[table.offset : table.offset + table.size]
        return [(at, info & 0xFFFFFFFF, info >> 32, addend) for at, info, addend in struct.iter_unpack("<QQq", data)]

    def defined(self) -> Iterator[Symbol]:
        """Global symbols that have a place in a section."""
        for symbol in self.symbols:
            if symbol.is_global and 0 < symbol.section < len(self.sections) and symbol.name:
                yield symbol


def is_loaded(section: Section) -> bool:
    if section.flags & SHF_TLS:
        raise CompileError(f"section {section.name}: thread-local storage is not supported")
    return bool(section.flags & SHF_ALLOC) and not section.name.startswith(UNWIND)


class Linker(ABC):
    """Their global symbols become the image's; what none of the objects defines is imported, or is a CompileError where
    it is hidden. A processor's own has its constants, and `stub` and `apply`."""

    machine: ClassVar[int]  # ELF's number of the processor
    named: ClassVar[str]  # the processor, in messages
    stub_bytes: ClassVar[int]
    page_bytes: ClassVar[int]  # of the largest pages that kernels have: code and data get their own

    def __init__(self, objects: Sequence[bytes]) -> None:
        self.objects = [Object(data, self.machine, self.named) for data in objects]
        self.definitions: dict[str, tuple[Object, Symbol]] = {}
        for obj in self.objects:
            for symbol in obj.defined():
                if symbol.name in self.definitions:
                    raise CompileError(f"symbol {symbol.name!r} is defined twice")
                self.definitions[symbol.name] = obj, symbol

    def run(self) -> Image:
        imports = self._imports()
        self.stubs, code_bytes = self._lay_out(writable=False, start=0, extra=len(imports) * self.stub_bytes)
        self.slots, total = self._lay_out(writable=True, start=code_bytes, extra=len(imports) * 8)
        self.slot_of = {name: self.slots + 8 * k for k, name in enumerate(imports)}
        self.stub_of = {name: self.stubs + self.stub_bytes * k for k, name in enumerate(imports)}
        image = bytearray(total)
        for obj in self.objects:
            for section in obj.sections:
                if section.address >= 0 and section.kind != SHT_NOBITS:
                    image[section.address : section.address + section.size] = obj.data[
                        section.offset : section.offset + section.size
                    ]
        for name in imports:
            stub, slot = self.stub_of[name], self.slot_of[name]
            image[stub : stub + self.stub_bytes] = self.stub(stub, slot)
        for obj in self.objects:
            for table, target in obj.relocations:
                for at, kind, symbol, addend in obj.rows(table):
                    self.apply(image, obj, target, at, kind, obj.symbols[symbol], addend)
        symbols = {
            name: obj.sections[symbol.section].address + symbol.value
            for name, (obj, symbol) in self.definitions.items()
        }
        return Image(bytes(image), symbols, imports, self.slots, code_bytes)

    def _imports(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for obj in self.objects:
            for table, _ in obj.relocations:
                for _, _, number, _ in obj.rows(table):
                    symbol = obj.symbols[number]
                    if self.is_import(symbol):
                        if symbol.is_hidden:
                            raise CompileError(f"symbol {symbol.name!r} is defined nowhere")
                        names[symbol.name] = None
        return tuple(names)

    def is_import(self, symbol: Symbol) -> bool:
        return symbol.section == SHN_UNDEF and symbol.name not in self.definitions

    def _lay_out(self, *, writable: bool, start: int, extra: int) -> tuple[int, int]:
        """Give sections their addresses; returns where `extra` bytes begin after them and the page-aligned end."""
        at = start
        for section in (section for obj in self.objects for section in obj.sections):
            if section.kind in (SHT_RELA, SHT_SYMTAB) or not is_loaded(section):
                continue
            if bool(section.flags & SHF_WRITE) is writable:
                if not section.size:
                    section.address = at  # addresses of arrays without elements, which are never read
                    continue
                at = _aligned(at, section.alignment)
                if section.alignment > self.page_bytes:
                    raise CompileError(f"section {section.name} asks for an alignment of {section.alignment} bytes")
                section.address = at
                at += section.size
        at = _aligned(at, 16)
        return at, _aligned(at + extra, self.page_bytes)

    def address(self, obj: Object, symbol: Symbol) -> int:
        """The place in the image of a symbol that this object, or another one, defines."""
        if symbol.section == SHN_UNDEF:
            obj, symbol = self.definitions[symbol.name]
        if symbol.section in (SHN_ABS, SHN_COMMON) or symbol.section >= len(obj.sections):
            raise CompileError(f"symbol {symbol.name!r}: absolute and common symbols are not supported")
        section = obj.sections[symbol.section]
        if section.address < 0:
            raise CompileError(f"symbol {symbol.name!r} is in section {section.name}, which is not loaded")
        return section.address + symbol.value

    @abstractmethod
    def stub(self, stub: int, slot: int) -> bytes:
        """Code at the place `stub` of the image that jumps to the address in `slot`."""

    @abstractmethod
    def apply(
        self, image: bytearray, obj: Object, section: Section, at: int, kind: int, symbol: Symbol, addend: int
    ) -> None:
        """Do a relocation of type `kind` at an offset of the section; CompileError where no image can have it."""

    def refused(self, kind: str, symbol: Symbol, section: Section) -> CompileError:
        """The error for such a relocation."""
        return CompileError(
            f"relocation {kind} against {symbol.name or '?'!r} in section {section.name} is not supported: images are "
            "position-independent"
        )


def _aligned(value: int, alignment: int) -> int:
    alignment = max(1, alignment)
    return (value + alignment - 1) // alignment * alignment


def put32(image: bytearray, place: int, value: int, symbol: Symbol) -> None:
    """Write a distance to the symbol; CompileError where it is too large."""
    if not -(1 << 31) <= value < 1 << 31:
        raise CompileError(f"{symbol.name!r} is further than 2 GiB away: the program's constants are too large")
    struct.pack_into("<i", image, place, value)
