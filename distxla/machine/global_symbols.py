"""Symbols for libraries that are loaded later: functions of this process under names that these libraries leave open.

The dynamic linker takes them from a shared object that is made here, in a file without a name. It holds no code: its
symbols are absolute, and their values are the functions' addresses.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from typing import Final

from distxla.errors import ClusterError
from distxla.machine.mappings import PAGE
from distxla.machine.memory_files import memory_file

_DYNAMIC, _HEADER, _SEGMENT, _SYMBOL = "<qQ", "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IBBHQQ"
_ABSOLUTE: Final = 0xFFF1  # section of symbols that are not moved
_GLOBAL_FUNCTION: Final = 0x12
_LOAD, _DYNAMIC_SEGMENT, _STACK, _READ_WRITE = 1, 2, 0x6474E551, 6
_HASH, _STRINGS, _SYMBOLS, _STRING_BYTES, _SYMBOL_BYTES = 4, 5, 6, 10, 11  # entries of the dynamic section


def define_symbols(addresses: Mapping[str, int]) -> None:
    """Let these names mean these addresses in libraries that this process loads from now on, until it ends.

    ClusterError where the dynamic linker refuses.
    """
    descriptor = memory_file("distxla-symbols")
    try:
        os.write(descriptor, _shared_object(addresses))
        ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ClusterError(f"cannot define {', '.join(addresses)} for libraries: {error}") from error
    finally:
        os.close(descriptor)


def _shared_object(addresses: Mapping[str, int]) -> bytes:
    with open("/proc/self/exe", "rb") as own:
        identity, _, machine, version = struct.unpack("<16sHHI", own.read(24))
    strings, symbols = b"\0", struct.pack(_SYMBOL, 0, 0, 0, 0, 0, 0)
    for name, address in addresses.items():
        symbols += struct.pack(_SYMBOL, len(strings), _GLOBAL_FUNCTION, 0, _ABSOLUTE, address, 0)
        strings += name.encode() + b"\0"
    count = len(addresses) + 1
    chain = [0, *range(2, count), 0]  # one bucket: every symbol leads to the next one
    table = struct.pack(f"<{4 + count - 1}I", 1, count, 1, *chain)
    head = struct.calcsize(_HEADER) + 3 * struct.calcsize(_SEGMENT)
    at_symbols = head
    at_table = at_symbols + len(symbols)
    at_strings = at_table + len(table)
    at_dynamic = (at_strings + len(strings) + 15) // 16 * 16
    entries = (
        (_HASH, at_table), (_STRINGS, at_strings), (_SYMBOLS, at_symbols), (_STRING_BYTES, len(strings)),
        (_SYMBOL_BYTES, struct.calcsize(_SYMBOL)), (0, 0),
    )  # fmt: skip
    dynamic = b"".join(struct.pack(_DYNAMIC, *entry) for entry in entries)
    size = at_dynamic + len(dynamic)
    header = struct.pack(_HEADER, identity, 3, machine, version, 0, 64, 0, 0, 64, struct.calcsize(_SEGMENT), 3, 0, 0, 0)
    segments = (
        (_LOAD, _READ_WRITE, 0, 0, 0, size, size, PAGE),
        (_DYNAMIC_SEGMENT, _READ_WRITE, at_dynamic, at_dynamic, at_dynamic, len(dynamic), len(dynamic), 8),
        (_STACK, _READ_WRITE, 0, 0, 0, 0, 0, 16),
    )
    body = header + b"".join(struct.pack(_SEGMENT, *segment) for segment in segments) + symbols + table + strings
    return body.ljust(at_dynamic, b"\0") + dynamic
