"""Fibers: stacks of their own, between which one thread of the machine switches.

A fiber that doesn't run is its stack pointer. On top of its stack lie the registers that a called function has to
preserve, and above them the address at which it goes on.
"""

from __future__ import annotations

from llvmlite import ir

from distxla.emit.native_function import I64, POINTER

PRESERVED = ("rbp", "rbx", "r12", "r13", "r14", "r15")


class Fibers:
    """The part of `targets.code.CodeTarget` that emits fibers."""

    def fiber_switch(self, name: str) -> str:
        """Vector registers belong to the caller, and nothing changes the control words."""
        return "\n".join(
            [
                ".text",
                ".p2align 4",
                f".globl {name}",
                f".hidden {name}",
                f".type {name},@function",
                f"{name}:",
                *(f"pushq %{register}" for register in PRESERVED),
                "movq %rsp, (%rdi)",
                "movq %rsi, %rsp",
                *(f"popq %{register}" for register in reversed(PRESERVED)),
                "retq",
                f".size {name}, .-{name}",
            ]
        )

    def emit_fiber(self, builder: ir.IRBuilder, top: ir.Value, function: ir.Value) -> ir.Value:
        # from the top: no return address, which a function expects 8 bytes below a multiple of 16; where to go on
        words = [I64(0), builder.ptrtoint(function, I64), *(I64(0) for _ in PRESERVED)]
        for number, word in enumerate(words, 1):
            place = builder.inttoptr(builder.sub(top, I64(8 * number)), POINTER)
            builder.store(word, place)
        return builder.sub(top, I64(8 * len(words)))
