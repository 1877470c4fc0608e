"""The native functions of joint calls in this process, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from llvmlite import binding

from distxla.collectives.protocols.launch_board import Arrival, LaunchSet
from distxla.collectives.transports.shared_memory.emit_launches import emit_launches
from distxla.targets.code import CodeModule
from distxla.targets.registry import native_target


class NativeLaunches:
    """log(LaunchSet, ordinal, program, by_frames, site), and so on: as the emitted functions, without Python's lock."""

    def __init__(self) -> None:
        code = native_target().code
        module = CodeModule("test_launches", code)
        names = [function.name for function in emit_launches(module)]
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(opt=2)
        self._engine = binding.create_mcjit_compiler(code.parse(module), machine)
        self._engine.finalize_object()
        log, issue, arrive = (self._engine.get_function_address(name) for name in names)
        u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
        self._log = ctypes.CFUNCTYPE(u64, pointer, u64, u32, u32, ctypes.c_char_p, u64)(log)
        self._issue = ctypes.CFUNCTYPE(u32, pointer, u64, u64, u32, u32)(issue)
        self._arrive = ctypes.CFUNCTYPE(u32, pointer, u64, u64, u32)(arrive)

    def log(self, members: LaunchSet, ordinal: int, program: int, site: bytes = b"", by_frames: int = 0) -> int:
        """The turn."""
        return int(self._log(ctypes.addressof(members), ordinal, program, by_frames, site, len(site)))

    def issue(self, members: LaunchSet, turn: int, ordinal: int, sequence: int, target: int) -> bool:
        """Whether the owner has the slice."""
        return bool(self._issue(ctypes.addressof(members), turn, ordinal, sequence, target))

    def arrive(self, members: LaunchSet, turn: int, ordinal: int, program: int) -> Arrival:
        """What the member finds."""
        return Arrival(self._arrive(ctypes.addressof(members), turn, ordinal, program))


@cache
def native_launches() -> NativeLaunches:
    """Compiled once a process."""
    return NativeLaunches()


def launch_set(position: int, board: int, headers: Sequence[int], logs: Sequence[int], number: int = 1) -> LaunchSet:
    """Of a process in a set; addresses in this process."""
    count = len(headers)
    pointers = ctypes.c_void_p * count
    tables = pointers(*headers), pointers(*logs), (ctypes.c_uint32 * count)()
    made = LaunchSet(count, number, position, 0, board, *[ctypes.addressof(table) for table in tables])
    made.tables = tables  # they live as long
    return made
