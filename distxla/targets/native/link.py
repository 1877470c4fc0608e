"""A linker: x86-64 ELF relocatable files in, position-independent image out.

The image is a block of bytes that works at any page-aligned address without being changed: code and read-only data
first, then writable data with the import slots. External functions are reached through the slots, which the loader
fills with addresses; a call goes through a stub `jmp *slot(%rip)`.

The output of this project's compiler needs no more: no dynamic loader, no thread-local storage, no
absolute addresses. Anything else is a CompileError that names it.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator, Sequence

from distxla.errors import CompileError
from distxla.lazy_dataclass import dataclass
from distxla.targets.image import Image

PAGE = 4096
EM_X86_64 = 62
SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 2, 4, 8
SHF_WRITE, SHF_ALLOC, SHF_TLS = 1, 2, 0x400
SHN_UNDEF, SHN_ABS, SHN_COMMON = 0, 0xFFF1, 0xFFF2
R_64, R_PC32, R_PLT32, R_GOTPCREL, R_PC64, R_GOTPCRELX, R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
HIDDEN = 2  # visibility
STUB = b"\xff\x25"  # jmp *disp32(%rip)
STUB_BYTES = 8
UNWIND = ".eh_frame"  # nothing unwinds through a program: dropped


@dataclass
class _Section:
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
class _Symbol:
    name: str
    section: int
    value: int
    is_global: bool
    kind: int
    is_hidden: bool


def link(objects: Sequence[bytes]) -> Image:
    """Link the object files. Their global symbols become the image's; what none of them defines is imported, or is a
    CompileError where it is hidden."""
    return _Linker([_Object(data) for data in objects]).run()


class _Object:
    """An object file as it is read."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF":
            raise CompileError(f"the compiler's output is no ELF object (on {platform.system()})")
        kind, machine = struct.unpack_from("<HH", data, 16)
        if data[4] != 2 or data[5] != 1 or machine != EM_X86_64 or kind != 1:
            raise CompileError(
                f"only x86-64 objects can be linked; this one is for ELF machine {machine} ({platform.machine()})"
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

    def _read_sections(self) -> list[_Section]:
        (table,) = struct.unpack_from("<Q", self.data, 0x28)
        entry_size, count, names = struct.unpack_from("<HHH", self.data, 0x3A)
        if count == 0:  # more than 65279 sections: the count is in the first one
            (count,) = struct.unpack_from("<Q", self.data, table + 32)
        rows = [struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * entry_size) for i in range(count)]
        if names == 0xFFFF:
            names = rows[0][6]
        strings = rows[names][4]
        return [
            _Section(self._string(strings + name), kind, flags, offset, size, link_, info, alignment, entry)
            for name, kind, flags, _, offset, size, link_, info, alignment, entry in rows
        ]

    def _string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def _read_symbols(self) -> list[_Symbol]:
        for section in self.sections:
            if section.kind == SHT_SYMTAB:
                strings = self.sections[section.link].offset
                return [
                    _Symbol(self._string(strings + name), index, value, info >> 4 != 0, info & 15, other & 3 == HIDDEN)
                    for name, info, other, index, value, _ in struct.iter_unpack(
                        "<IBBHQQ", self.data[section.offset : section.offset + section.size]
                    )
                ]
        return []

    def rows(self, table: _Section) -> list[tuple[int, int, int, int]]:
        """(offset in the target section, type, symbol number, addend)."""
        data = self.data[table.offset : table.offset + table.size]
        return [(at, info & 0xFFFFFFFF, info >> 32, addend) for at, info, addend in struct.iter_unpack("<QQq", data)]

    def defined(self) -> Iterator[_Symbol]:
        """Global symbols that have a place in a section."""
        for symbol in self.symbols:
            if symbol.is_global and 0 < symbol.section < len(self.sections) and symbol.name:
                yield symbol


def is_loaded(section: _Section) -> bool:
    if section.flags & SHF_TLS:
        raise CompileError(f"section {section.name}: thread-local storage is not supported")
    return bool(section.flags & SHF_ALLOC) and not section.name.startswith(UNWIND)


class _Linker:
    def __init__(self, objects: Sequence[_Object]) -> None:
        self.objects = objects
        self.definitions: dict[str, tuple[_Object, _Symbol]] = {}
        for obj in objects:
            for symbol in obj.defined():
                if symbol.name in self.definitions:
                    raise CompileError(f"symbol {symbol.name!r} is defined twice")
                self.definitions[symbol.name] = obj, symbol

    def run(self) -> Image:
        imports = self._imports()
        self.stubs, code_bytes = self._lay_out(writable=False, start=0, extra=len(imports) * STUB_BYTES)
        self.slots, total = self._lay_out(writable=True, start=code_bytes, extra=len(imports) * 8)
        self.slot_of = {name: self.slots + 8 * k for k, name in enumerate(imports)}
        self.stub_of = {name: self.stubs + STUB_BYTES * k for k, name in enumerate(imports)}
        image = bytearray(total)
        for obj in self.objects:
            for section in obj.sections:
                if section.address >= 0 and section.kind != SHT_NOBITS:
                    image[section.address : section.address + section.size] = obj.data[
                        section.offset : section.offset + section.size
                    ]
        for name in imports:
            stub, slot = self.stub_of[name], self.slot_of[name]
            image[stub : stub + STUB_BYTES] = STUB + struct.pack("<i", slot - (stub + 6)) + b"\xcc\xcc"
        for obj in self.objects:
            for table, target in obj.relocations:
                for at, kind, symbol, addend in obj.rows(table):
                    self._apply(image, obj, target, at, kind, obj.symbols[symbol], addend)
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
                    if self._is_import(symbol):
                        if symbol.is_hidden:
                            raise CompileError(f"symbol {symbol.name!r} is defined nowhere")
                        names[symbol.name] = None
        return tuple(names)

    def _is_import(self, symbol: _Symbol) -> bool:
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
                if section.alignment > PAGE:
                    raise CompileError(f"section {section.name} asks for an alignment of {section.alignment} bytes")
                section.address = at
                at += section.size
        at = _aligned(at, 16)
        return at, _aligned(at + extra, PAGE)

    def _address(self, obj: _Object, symbol: _Symbol) -> int:
        """The place in the image of a symbol that this object, or another one, defines."""
        if symbol.section == SHN_UNDEF:
            obj, symbol = self.definitions[symbol.name]
        if symbol.section in (SHN_ABS, SHN_COMMON) or symbol.section >= len(obj.sections):
            raise CompileError(f"symbol {symbol.name!r}: absolute and common symbols are not supported")
        section = obj.sections[symbol.section]
        if section.address < 0:
            raise CompileError(f"symbol {symbol.name!r} is in section {section.name}, which is not loaded")
        return section.address + symbol.value

    def _apply(
        self, image: bytearray, obj: _Object, section: _Section, at: int, kind: int, symbol: _Symbol, addend: int
    ) -> None:
        place, is_import = section.address + at, self._is_import(symbol)
        if kind in (R_PC32, R_PLT32):
            target = self.stub_of[symbol.name] if is_import else self._address(obj, symbol)
            _put32(image, place, target + addend - place, symbol)
        elif kind == R_PC64 and not is_import:
            struct.pack_into("<q", image, place, self._address(obj, symbol) + addend - place)
        elif kind in (R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX):
            if is_import:
                _put32(image, place, self.slot_of[symbol.name] + addend - place, symbol)
            else:
                _relax(image, place, self._address(obj, symbol) + addend - place, symbol)
        else:
            names = {R_64: "R_X86_64_64 (an absolute address)"}
            raise CompileError(
                f"relocation {names.get(kind, f'type {kind}')} against {symbol.name or '?'!r} in section "
                f"{section.name} is not supported: images are position-independent"
            )


def _relax(image: bytearray, place: int, distance: int, symbol: _Symbol) -> None:
    """Turn a load of a local symbol's address from a table into an lea of it."""
    if image[place - 2] != 0x8B:  # mov r, disp(%rip)
        raise CompileError(f"an access to {symbol.name!r} through an address table is not supported")
    image[place - 2] = 0x8D  # lea
    _put32(image, place, distance, symbol)


def _aligned(value: int, alignment: int) -> int:
    alignment = max(1, alignment)
    return (value + alignment - 1) // alignment * alignment


def _put32(image: bytearray, place: int, value: int, symbol: _Symbol) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise CompileError(f"{symbol.name!r} is further than 2 GiB away: the program's constants are too large")
    struct.pack_into("<i", image, place, value)
