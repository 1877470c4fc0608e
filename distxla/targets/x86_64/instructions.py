"""Pauses, clocks, streamed stores and system calls as LLVM IR: x86-64 instructions."""

from __future__ import annotations

from llvmlite import ir

from distxla.emit.native_function import I8, I32, I64, VOID


class Instructions:
    """The part of `targets.code.CodeTarget` that emits single instructions."""

    pair_type = ir.VectorType(I64, 2)
    line_type = ir.VectorType(I8, 64)  # the widest vector, and a cache line
    cycles_per_us = 2500  # of the time-stamp counter: 2 to 4 GHz

    def emit_spin(self, builder: ir.IRBuilder) -> None:
        builder.call(ir.InlineAsm(ir.FunctionType(VOID, []), "pause", "", side_effect=True), [])

    def emit_cycles(self, builder: ir.IRBuilder) -> ir.Value:
        """The time-stamp counter."""
        clock = builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(I64, []))
        return builder.call(clock, [])

    def emit_streamed_store(self, builder: ir.IRBuilder, line: ir.Value, place: ir.Value) -> None:
        store = builder.store(line, place, align=self.line_type.count)
        store.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))

    def emit_streamed_fence(self, builder: ir.IRBuilder) -> None:
        """Streamed stores are weakly ordered, unlike all others of this processor."""
        builder.call(ir.InlineAsm(ir.FunctionType(VOID, []), "sfence", "~{memory}", side_effect=True), [])

    def system_call(self, builder: ir.IRBuilder, number: int, *arguments: ir.Value) -> ir.Value:
        """A Linux system call of up to six i64 arguments; the i64 result is negative on error."""
        registers = ("{rdi}", "{rsi}", "{rdx}", "{r10}", "{r8}", "{r9}")[: len(arguments)]
        constraints = ",".join(("={rax}", "{rax}", *registers, "~{rcx}", "~{r11}", "~{memory}"))
        kind = ir.FunctionType(I64, [I64] * (1 + len(arguments)))
        code = ir.InlineAsm(kind, "syscall", constraints, side_effect=True)
        return builder.call(code, [I64(number), *arguments])
