"""A native loop in which a member of a set calls one program after the other, for tests that let several run at once.

As a process, `python -m tests.collectives.transports.launch_hammer FD MEMBERS MEMBER CALLS`: on memory that FD has.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache

from llvmlite import binding, ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.launch_board import BOARD, LOG, Arrival, LaunchSet, Refusal
from distxla.collectives.transports.launch_views import BoardView, LogView
from distxla.collectives.transports.shared_memory.emit_launches import emit_launches
from distxla.collectives.transports.shared_words import SharedWords
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, POINTER, VOID, i32, i64
from distxla.emit.struct_view import Struct
from distxla.targets.code import CodeModule, target_of
from distxla.targets.registry import native_target
from tests.collectives.transports.native_launches import launch_set

_ENGINES: list[object] = []  # whose code is used
STARTED, REFUSED, WRONG, DIFFERED = 1, 2, 3, 4  # what became of a call; DIFFERED: it was refused, after that answer
SITES = b"train.py:29"


class Hammered:
    """Memory of a set's members: headers, logs, the board, a word of data and an outcome a call of each, and
    one verdict a call: 1 once the owner has refused it."""

    def __init__(self, members: int, calls: int, descriptor: int = -1) -> None:
        size, self.headers, self.logs, self.board, self.data, self.outcomes = _places(members, calls)
        self.verdicts = self.outcomes + members * calls
        self.words = SharedWords(memoryview(mmap.mmap(descriptor, size)))
        self.members, self.calls = members, calls
        address = self.words.address
        places = address + self.board, [address + at for at in self.headers], [address + at for at in self.logs]
        self.sets = [launch_set(k, *places) for k in range(members)]
        self.view = BoardView(self.words, self.board, members)
        self.log_views = [LogView(self.words, at) for at in self.logs]

    def run(self, member: int, programs: bytes, *, sleeps: bool) -> None:
        """Make all calls. programs: of each.  sleeps: wait for starts by sleeping, else look for verdicts, too."""
        data = self.words.address + self.data
        outcomes = self.words.address + self.outcomes + member * self.calls
        verdicts = self.words.address + self.verdicts
        _hammer()(ctypes.addressof(self.sets[member]), self.calls, programs, data, outcomes, verdicts, sleeps)

    def refuse(self, ordinal: int) -> Refusal:
        """As the owner."""
        outcome = self.view.refuse(ordinal)
        if outcome is Refusal.REFUSED:
            self.words.view[self.verdicts + ordinal] = 1
        return outcome

    def found(self, member: int) -> bytes:
        """The outcomes of a member's calls."""
        begin = self.outcomes + member * self.calls
        return bytes(self.words.view[begin : begin + self.calls])

    def commands(self) -> list[int]:
        """H_COMMAND of each member."""
        return [self.words.load(control_words.H_COMMAND, at) for at in self.headers]


def _places(members: int, calls: int) -> tuple[int, list[int], list[int], int, int, int]:
    headers = [k * control_words.HEADER_BYTES for k in range(members)]
    logs = [members * control_words.HEADER_BYTES + k * LOG.size for k in range(members)]
    board = logs[-1] + LOG.size
    data = board + BOARD.size
    outcomes = data + members * calls * 8
    return -(-(outcomes + (members + 1) * calls) // 4096) * 4096, headers, logs, board, data, outcomes


def memory_size(members: int, calls: int) -> int:
    """Bytes that a Hammered takes."""
    return _places(members, calls)[0]


@cache
def _hammer() -> Callable[..., None]:
    code = native_target().code
    module = CodeModule("test_hammer", code)
    _emit(module)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    engine = binding.create_mcjit_compiler(code.parse(module), machine)
    engine.finalize_object()
    pointer = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, pointer, ctypes.c_uint64, ctypes.c_char_p, pointer, pointer, pointer, ctypes.c_uint32)
    found = kind(engine.get_function_address("hammer"))
    _ENGINES.append(engine)
    return found


def _emit(module: ir.Module) -> None:
    """void hammer(LaunchSet*, u64 calls, u8 programs[], u64 data[members][calls], u8 outcomes[], u8 verdicts[],
    u32 sleeps)."""
    functions = emit_launches(module)
    function, atomics = AtomicsBuilder.function(
        module, "hammer", VOID, [POINTER, I64, *[POINTER] * 4, I32], internal=False, optimised=True
    )
    base, calls, programs, data, outcomes, verdicts, sleeps = function.args
    builder, members = atomics.builder, Struct(atomics, LaunchSet, base)
    count, position = (builder.zext(members.get(name), I64) for name in ("members", "position"))
    header = members.element("headers", position, POINTER)
    text = ir.GlobalVariable(module, ir.ArrayType(I8, len(SITES)), "site")
    text.initializer = ir.Constant(ir.ArrayType(I8, len(SITES)), bytearray(SITES))
    site = builder.bitcast(text, POINTER)

    def place(member: ir.Value) -> ir.Value:
        """Of its data for the call."""
        return builder.mul(builder.add(builder.mul(member, calls), ordinal), i64(8))

    with builder.goto_entry_block():
        outcome = builder.alloca(I8)
    with atomics.count(i64(0), calls) as ordinal:
        program = builder.zext(atomics.load(I8, programs, ordinal), I32)
        sequence = builder.add(atomics.acquire(header, control_words.H_COMMAND), i32(1))
        turn = builder.call(functions.log, [base, ordinal, program, i32(0), site, i64(len(SITES))])
        builder.call(functions.issue, [base, turn, ordinal, sequence, i32(0)])
        atomics.store(ordinal, data, place(position))
        answer = builder.call(functions.arrive, [base, turn, ordinal, program])
        atomics.store(I8(STARTED), outcome)
        with atomics.forever() as over:
            with atomics.when(builder.icmp_unsigned("==", answer, i32(Arrival.REFUSED))):
                atomics.store(I8(REFUSED), outcome)
                builder.branch(over)
                builder.position_at_end(builder.append_basic_block("never"))
            command = atomics.acquire(header, control_words.H_COMMAND)
            atomics.leave_if(builder.icmp_unsigned("==", command, sequence), over)
            with builder.if_else(builder.icmp_unsigned("!=", sleeps, i32(0))) as (asleep, awake):
                with asleep:
                    target_of(builder).emit_sleep(builder, atomics.at(header, control_words.H_COMMAND), command)
                with awake:
                    target_of(builder).emit_yield(builder)
                    verdict = builder.load_atomic(atomics.at(verdicts, ordinal), "acquire", 1, typ=I8)
                    with atomics.when(builder.icmp_unsigned("!=", verdict, I8(0))):
                        differs = builder.icmp_unsigned("==", answer, i32(Arrival.DIFFERS))
                        atomics.store(builder.select(differs, I8(DIFFERED), I8(REFUSED)), outcome)
                        builder.branch(over)
                        builder.position_at_end(builder.append_basic_block("never"))
        started = builder.icmp_unsigned("==", atomics.load(I8, outcome), I8(STARTED))
        with atomics.when(started), atomics.count(i64(0), count) as k:
            found = atomics.load(I64, data, place(k))
            with atomics.when(builder.icmp_unsigned("!=", found, ordinal)):
                atomics.store(I8(WRONG), outcome)
        atomics.store(atomics.load(I8, outcome), outcomes, ordinal)
    builder.ret_void()


if __name__ == "__main__":
    fd, member_count, own, call_count = map(int, sys.argv[1:])
    Hammered(member_count, call_count, fd).run(own, bytes(1 + k % 200 for k in range(call_count)), sleeps=True)
