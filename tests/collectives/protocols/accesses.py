"""Which sequences of shared accesses a program has: a model's, and those of emitted LLVM IR, to be compared.

Both become automata whose edges are accesses; conditions are left out, so an automaton has the sequences of all paths.
An access is what is done, to which word, in which order; in the IR all of it is read off the instruction, and the word
is the one that its address was made with.

Left out are words of plain order, and the program's own memory: a copy is one access, whatever it copies. A loop over
members, leaves or looks at the clock counts as one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from llvmlite import ir

from distxla.collectives.protocols.layout import Order, Word
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import i64
from distxla.targets.x86_64.instructions import Instructions
from tests.collectives.protocols.models.machine import ModelStep, Process, title
from tests.collectives.protocols.programs import following

READS = {Order.PLAIN: "plain", Order.MONOTONIC: "monotonic", Order.RELEASE: "acquire", Order.FENCED: "seq_cst"}
UPDATES = {"add": "add", "swap": "xchg", "cas": "cmpxchg"}
CALLS = {  # functions, and what the models call them
    "distxla_wait": "wait",
    "distxla_wake": "wake",
    "distxla_enqueue": "enqueue",
    "llvm.memcpy.p0.p0.i64": "copy",
    "llvm.memset.p0.i64": "zero",
    "launch_note_site": "note the line",
    "launch_write_apart": "write both lines",
    "distxla_stream_ring": "ring",
    "distxla_stream_taken": "taken",
    "sleep": "sleep",
    "nap": "nap",
    "futex wake": "futex wake",
}
INDIRECT = "call of what a register holds"
RENAMED = {"work": INDIRECT, "run": INDIRECT, "end the oldest round": INDIRECT, "near ring": "ring", "far ring": "ring"}


@dataclass
class Automaton:
    """edges: by state, what is accessed ("" for nothing) and the state after.  ends: where a sequence may end."""

    edges: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)

    def closed(self, states: frozenset[int]) -> frozenset[int]:
        """The states with all that are reached from them without an access."""
        found, waiting = set(states), list(states)
        while waiting:
            for label, after in self.edges.get(waiting.pop(), ()):
                if not label and after not in found:
                    found.add(after)
                    waiting.append(after)
        return frozenset(found)

    def after(self, states: frozenset[int]) -> dict[str, frozenset[int]]:
        """By access the states behind it."""
        found: dict[str, set[int]] = {}
        for state in states:
            for label, after in self.edges.get(state, ()):
                if label:
                    found.setdefault(label, set()).add(after)
        return {label: self.closed(frozenset(after)) for label, after in found.items()}


def difference(model: Automaton, code: Automaton) -> str:
    """A sequence that only one of them has, and which; nothing where they have the same."""
    begin = model.closed(frozenset({0})), code.closed(frozenset({0}))
    paths: dict[tuple[frozenset[int], frozenset[int]], tuple[str, ...]] = {begin: ()}
    waiting = [begin]
    while waiting:
        pair = waiting.pop(0)
        path = paths[pair]
        in_model, in_code = model.after(pair[0]), code.after(pair[1])
        for label in sorted(in_model.keys() ^ in_code.keys()):
            return "\n  ".join([f"only the {'model' if label in in_model else 'code'} goes on so:", *path, label])
        if bool(pair[0] & model.ends) != bool(pair[1] & code.ends):
            return "\n  ".join([f"only the {'model' if pair[0] & model.ends else 'code'} ends here:", *path])
        for label, states in in_model.items():
            after = states, in_code[label]
            if after not in paths:
                paths[after] = (*path, label)
                waiting.append(after)
    return ""


# --- of a model


def of_model(process: Process) -> Automaton:
    """A routine's, by its model."""
    found = Automaton()
    steps = process.steps
    for at, step in enumerate(steps):
        if step.kind == "end" or at == len(steps) - 1:
            found.ends.add(at)
        elif step.routine:
            end = at
            while steps[end].routine == step.routine and steps[end].again == step.again:
                end += 1
            label = "" if step.again else _routine(step.routine)
            found.edges[at] = [(label, end)]
        else:
            found.edges[at] = [(_label(step), after) for after in following(steps, at)]
    return found


def _routine(name: str) -> str:
    return RENAMED.get(name, name)


def _label(step: ModelStep) -> str:
    """What a step accesses; nothing for what is left out."""
    if step.kind == "fence":
        return f"fence {step.role or READS[step.order]}"
    if step.again or step.word is None or step.word.order is Order.PLAIN:
        return ""
    word = title(step.word)
    if step.kind in UPDATES:
        return f"{UPDATES[step.kind]} {word} seq_cst"
    if step.kind in ("sleep", "nap", "wake"):
        kind = {"wake": "futex wake"}.get(step.kind, "nap" if step.role == "timed" else step.kind)
        return f"{kind} [{step.word.name}]"
    return f"load {word} {READS[step.order]}" if step.kind == "load" else f"store {word} {step.order.value}"


# --- of emitted code


@contextmanager
def recorded_words() -> Iterator[None]:
    """Within it, code is emitted whose addresses tell of their words, and whose counted loops run once."""
    plain_at = AtomicsBuilder.at

    def at(self: AtomicsBuilder, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        if not isinstance(offset, Word):
            return plain_at(self, base, offset)
        place = self.builder.gep(base, [i64(int(offset))], source_etype=ir.IntType(8))
        place.shared_word = offset
        return place

    @contextmanager
    def count(self: AtomicsBuilder, start: ir.Value, end: ir.Value, step: ir.Value | int = 1) -> Iterator[ir.Value]:
        yield start

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AtomicsBuilder, "at", at)
        patch.setattr(AtomicsBuilder, "count", count)
        yield


class NamedInstructions(Instructions):
    """A target that emits sleeps and wakes as calls."""

    def emit_spin(self, builder: ir.IRBuilder) -> None: ...

    def emit_yield(self, builder: ir.IRBuilder) -> None: ...

    def emit_monotonic(self, builder: ir.IRBuilder, time: ir.Value) -> None: ...

    def emit_sleep(
        self, builder: ir.IRBuilder, word: ir.Value, expected: ir.Value, timeout: ir.Value | None = None
    ) -> ir.Value:
        return builder.call(_declared(builder.module, "sleep" if timeout is None else "nap"), [word])

    def emit_wake(self, builder: ir.IRBuilder, word: ir.Value, most: ir.Value) -> None:
        builder.call(_declared(builder.module, "futex wake"), [word])


def _declared(module: ir.Module, name: str) -> ir.Function:
    kind = ir.FunctionType(ir.IntType(64), [ir.PointerType()])
    return module.globals.get(name) or ir.Function(module, kind, name)


def of_code(function: ir.Function, arguments: Mapping[int, Word], left_out: frozenset[str]) -> Automaton:
    """A function's. arguments: those that are addresses of words, by position.  left_out: titles of words."""
    for position, word in arguments.items():
        function.args[position].shared_word = word
    found, numbers = Automaton(), dict[Any, int]()
    for block in function.blocks:
        for instruction in block.instructions:
            numbers[instruction] = len(numbers)
    firsts = {block: numbers[block.instructions[0]] for block in function.blocks}
    assert firsts[function.blocks[0]] == 0
    for block in function.blocks:
        for instruction in block.instructions:
            number = numbers[instruction]
            if isinstance(instruction, ir.instructions.Ret):
                found.ends.add(number)
            elif isinstance(instruction, ir.instructions.Terminator):
                found.edges[number] = [("", firsts[b]) for b in instruction.operands if isinstance(b, ir.Block)]
            else:
                found.edges[number] = [(_access(instruction, left_out), number + 1)]
    return found


def _access(instruction: Any, left_out: frozenset[str]) -> str:
    """What an instruction accesses; nothing for what is left out."""
    kinds = ir.instructions
    if isinstance(instruction, kinds.Fence):
        return f"fence {instruction.ordering}"
    if isinstance(instruction, kinds.CallInstr):
        return _call(instruction)
    if not isinstance(
        instruction,
        kinds.LoadInstr
        | kinds.LoadAtomicInstr
        | kinds.StoreInstr
        | kinds.StoreAtomicInstr
        | kinds.AtomicRMW
        | kinds.CmpXchg,
    ):
        return ""
    is_store = isinstance(instruction, kinds.StoreInstr | kinds.StoreAtomicInstr)
    word = getattr(instruction.operands[1 if is_store else 0], "shared_word", None)
    order = getattr(instruction, "ordering", "plain")
    if word is None or word.order is Order.PLAIN or title(word) in left_out:
        assert order == "plain" or word is not None, f"an atomic access to nothing that was declared: {instruction}"
        return ""
    if isinstance(instruction, kinds.AtomicRMW):
        return f"{instruction.operation} {title(word)} {order}"
    if isinstance(instruction, kinds.CmpXchg):
        return f"cmpxchg {title(word)} {order}"
    return f"{'store' if is_store else 'load'} {title(word)} {order}"


def _call(instruction: Any) -> str:
    callee = instruction.callee
    if not isinstance(callee, ir.Function):
        return INDIRECT
    if callee.name not in CALLS:
        return ""
    atomics = [f"[{w.name}]" for a in instruction.args if (w := getattr(a, "shared_word", None)) is not None]
    name = CALLS[callee.name]
    return " ".join([name, *atomics]) if name in ("wait", "wake", "sleep", "nap", "futex wake") else name
