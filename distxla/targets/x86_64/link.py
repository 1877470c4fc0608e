"""The linker's part for x86-64: relocations, and stubs `jmp *slot(%rip)`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from distxla.errors import CompileError
from distxla.program.image import Image
from distxla.targets.native.link import Linker, Object, Section, Symbol, put32

R_64, R_PC32, R_PLT32, R_GOTPCREL, R_PC64, R_GOTPCRELX, R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
STUB = b"\xff\x25"  # jmp *disp32(%rip)


def link(objects: Sequence[bytes]) -> Image:
    """Link the object files; CompileError for code that no image can hold."""
    return X86Linker(objects).run()


class X86Linker(Linker):
    """`native.link.Linker`."""

    machine = 62
    named = "x86-64"
    stub_bytes = 8
    page_bytes = 4096

    def stub(self, stub: int, slot: int) -> bytes:
        return STUB + struct.pack("<i", slot - (stub + 6)) + b"\xcc\xcc"

    def apply(
        self, image: bytearray, obj: Object, section: Section, at: int, kind: int, symbol: Symbol, addend: int
    ) -> None:
        place, is_import = section.address + at, self.is_import(symbol)
        if kind in (R_PC32, R_PLT32):
            target = self.stub_of[symbol.name] if is_import else self.address(obj, symbol)
            put32(image, place, target + addend - place, symbol)
        elif kind == R_PC64 and not is_import:
            struct.pack_into("<q", image, place, self.address(obj, symbol) + addend - place)
        elif kind in (R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX):
            if is_import:
                put32(image, place, self.slot_of[symbol.name] + addend - place, symbol)
            else:
                _relax(image, place, self.address(obj, symbol) + addend - place, symbol)
        else:
            raise self.refused("R_X86_64_64 (an absolute address)" if kind == R_64 else f"type {kind}", symbol, section)


def _relax(image: bytearray, place: int, distance: int, symbol: Symbol) -> None:
    """Turn a load of a local symbol's address from a table into an lea of it."""
    if image[place - 2] != 0x8B:  # mov r, disp(%rip)
        raise CompileError(f"an access to {symbol.name!r} through an address table is not supported")
    image[place - 2] = 0x8D  # lea
    put32(image, place, distance, symbol)
