"""Waiting and the monotonic clock as LLVM IR: system calls of Linux."""

from __future__ import annotations

from abc import ABC, abstractmethod

from llvmlite import ir

from distxla.emit.native_function import I64
from distxla.targets.native.traits import own_traits

FUTEX_WAIT, FUTEX_WAKE = 0, 1
CLOCK_MONOTONIC = 1


class SystemCalls(ABC):
    """The part of `targets.code.CodeTarget` that emits system calls."""

    fault_address_offset = 16  # si_addr in siginfo_t

    @abstractmethod
    def system_call(self, builder: ir.IRBuilder, number: int, *arguments: ir.Value) -> ir.Value:
        """A system call of up to six i64 arguments, by the processor's instruction; the i64 result is negative on
        error."""

    def emit_yield(self, builder: ir.IRBuilder) -> None:
        self.system_call(builder, own_traits().sched_yield)

    def emit_sleep(
        self, builder: ir.IRBuilder, word: ir.Value, expected: ir.Value, timeout: ir.Value | None = None
    ) -> ir.Value:
        address, value = builder.ptrtoint(word, I64), builder.zext(expected, I64)
        until = I64(0) if timeout is None else builder.ptrtoint(timeout, I64)
        return self.system_call(builder, own_traits().futex, address, I64(FUTEX_WAIT), value, until, I64(0), I64(0))

    def emit_wake(self, builder: ir.IRBuilder, word: ir.Value, most: ir.Value) -> None:
        address = builder.ptrtoint(word, I64)
        count = I64(most.constant) if isinstance(most, ir.Constant) else builder.zext(most, I64)
        self.system_call(builder, own_traits().futex, address, I64(FUTEX_WAKE), count, I64(0), I64(0), I64(0))

    def emit_monotonic(self, builder: ir.IRBuilder, time: ir.Value) -> None:
        self.system_call(builder, own_traits().clock_gettime, I64(CLOCK_MONOTONIC), builder.ptrtoint(time, I64))
