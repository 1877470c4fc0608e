"""How two programs differ, in the user's words: another function, shape, order of devices, donation, constant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

import numpy as np

from distxla.diagnosis.facts.processes import Difference
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.jax.processes.fingerprint import renamed
from distxla.jax.processes.ledger_facts import function_of
from distxla.jax.processes.program_text import ProgramText
from distxla.lazy_dataclass import replace
from distxla.ops.constant import Constant
from distxla.text.literals import print_literal
from distxla.text.printer import print_instruction
from distxla.wording import counted

MOST: Final = 8  # differences that are told
_MOST_ELEMENTS: Final = 8  # of a constant that is written out
_MOST_TEXT: Final = 160  # characters
_LAYOUT: Final = re.compile(r"(?<=\])\{[^{}]*\}")
_LINE: Final = re.compile(r"(?P<file>.*?):(?P<line>\d+)(?::\d+)?(?: in .*)?")


def differences(one: ProgramText, other: ProgramText, processes: tuple[int, int] = (0, 1)) -> list[Difference]:
    """What differs, what a user knows first. processes: whose programs they are.

    Of two functions, or where arrays differ, the instructions are not compared: they differ everywhere.
    """
    found = [*_of_signatures(one, other)]
    is_another = any(each.what in ("function", "shape", "sharding") for each in found)
    if not is_another and (first := _first_instruction(one.module, other.module)) is not None:
        found.append(first)
    return [replace(each, process=processes[0], other_process=processes[1]) for each in found[:MOST]]


def _of_signatures(one: ProgramText, other: ProgramText) -> Iterator[Difference]:
    if function_of(one.name) != function_of(other.name):
        yield Difference("function", function_of(one.name), function_of(other.name))
    a, b = one.partitioned, other.partitioned
    names = _argument_names(one.module), _argument_names(other.module)
    yield from _arrays("argument", a.parameter_shapes, b.parameter_shapes, names)
    yield from _arrays("result", a.output_shapes, b.output_shapes, ((), ()))
    for what, shardings in (
        ("argument", (a.parameter_shardings, b.parameter_shardings)),
        ("result", (a.output_shardings, b.output_shardings)),
    ):
        if len(shardings[0]) == len(shardings[1]):
            for k, (mine, its) in enumerate(zip(*shardings)):
                if mine != its:
                    yield Difference("sharding", mine, its, where=_array(what, k, names if what == "argument" else ()))
    if one.rows != other.rows:
        yield Difference("devices", _rows(one.rows), _rows(other.rows))
    if one.donated != other.donated:
        yield Difference("donation", _arguments(one.donated), _arguments(other.donated))
    yield from _of_callbacks(one, other)
    if one.checks != other.checks:
        yield Difference("checks", ", ".join(sorted(one.checks)), ", ".join(sorted(other.checks)))


def _of_callbacks(one: ProgramText, other: ProgramText) -> Iterator[Difference]:
    """Of the functions from which both take values."""
    mine, its = ({number: (name, code) for number, name, code in text.callbacks} for text in (one, other))
    for number in sorted(mine.keys() & its.keys()):
        (name, code), (its_name, its_code) = mine[number], its[number]
        if code == its_code:
            continue
        if name == its_name:
            name, its_name = (f"{name} with code {each[:8]}" for each in (code, its_code))
        yield Difference("callback", name, its_name, where="" if len(mine) == 1 else str(number))


def _arrays(
    what: str, one: Sequence[str], other: Sequence[str], names: tuple[Sequence[str], Sequence[str]]
) -> Iterator[Difference]:
    for k, (mine, its) in enumerate(zip_longest(one, other)):
        if mine == its:
            continue
        where = _array(what, k, names)
        if mine is None or its is None:
            yield Difference("shape", _without_layout(mine or ""), _without_layout(its or ""), where=where)
        elif _without_layout(mine) != _without_layout(its):
            yield Difference("shape", _without_layout(mine), _without_layout(its), where=where)
        else:
            yield Difference("layout", mine, its, where=where)


def _array(what: str, number: int, names: Sequence[Sequence[str]]) -> str:
    """`argument 0 (x)`."""
    name = next((each[number] for each in names if number < len(each) and each[number]), "")
    return f"of {what} {number}" + (f" ({name})" if name else "")


def _argument_names(module: Module) -> list[str]:
    """As JAX calls them."""
    return [p.metadata.op_name if p.metadata is not None else "" for p in module.entry_computation.parameters]


def _without_layout(shape: str) -> str:
    return _LAYOUT.sub("", shape)


def _rows(rows: Sequence[Sequence[int]]) -> str:
    return _cut(str(list(rows[0]) if len(rows) == 1 else [list(row) for row in rows]))


def _arguments(donated: frozenset[int]) -> str:
    if not donated:
        return ""
    return f"argument{'' if len(donated) == 1 else 's'} {', '.join(map(str, sorted(donated)))}"


# --- instructions


def _first_instruction(one: Module, other: Module) -> Difference | None:
    """The first one that differs but for names: of the entry before others, a collective before others."""
    if (found := _first_collective((one, one.entry_computation), (other, other.entry_computation))) is not None:
        return found
    numbered = renamed(one), renamed(other)
    entries = [(one.entry_computation, numbered[0].entry_computation)]
    entries.append((other.entry_computation, numbered[1].entry_computation))
    others = [
        [pair for pair in zip(module.computations, its.computations) if pair[0].name != module.entry]
        for module, its in zip((one, other), numbered)
    ]
    for (mine, plain), (its, its_plain) in [(entries[0], entries[1]), *zip(*others)]:
        for k, (a, b) in enumerate(zip_longest(plain, its_plain)):
            if not _are_equal(a, b):
                at = mine.instructions[k] if a is not None else None
                its_at = its.instructions[k] if b is not None else None
                return _difference((one, mine, at), (other, its, its_at))
        if plain.root != its_plain.root:
            return _difference((one, mine, mine.root_instruction), (other, its, its.root_instruction))
    if len(one.computations) != len(other.computations):
        counts = [counted(len(module.computations), "computation") for module in (one, other)]
        return Difference("instruction", counts[0], counts[1])
    return None


def _first_collective(one: tuple[Module, Computation], other: tuple[Module, Computation]) -> Difference | None:
    """The first that differs in more than names and operands, of the collectives in their order."""
    sides = [[i for i in computation if i.op.is_collective] for _, computation in (one, other)]
    for a, b in zip_longest(*sides):
        if a is None or b is None or _signature(a) != _signature(b):
            return _difference((*one, a), (*other, b))
    return None


def _signature(instruction: Instruction) -> str:
    op = instruction.op.rename_computations(lambda name: "")
    return _as_text(instruction.replace(name="", op=op, operands=(), control_predecessors=()))


_Placed = tuple[Module, Computation, Instruction | None]


def _are_equal(one: Instruction | None, other: Instruction | None) -> bool:
    if one is None or other is None or _as_text(one) != _as_text(other):
        return False
    if isinstance(one.op, Constant) and isinstance(other.op, Constant):
        return one.op.literal == other.op.literal
    return True


def _difference(one: _Placed, other: _Placed) -> Difference:
    a, b = one[2], other[2]
    what, values = "instruction", ("" if a is None else _cut(_as_text(a)), "" if b is None else _cut(_as_text(b)))
    where = a
    if a is None or b is None:
        where = a or b
    elif isinstance(a.op, Constant) and isinstance(b.op, Constant) and a.shape == b.shape:
        what, values = "constant", _values(a.op.literal, b.op.literal)
        where = _user_with_frame(one[0], one[1], a) or a
    return Difference(
        what,
        values[0],
        values[1],
        where="" if where is None else where.name,
        frame_one=_frame_near(*one),
        frame_other=_frame_near(*other),
    )


def _values(one: Literal, other: Literal) -> tuple[str, str]:
    """Both values; of a large array, the first element that differs, with its index."""
    mine, its = one.array, other.array
    if mine is None or its is None or mine.size <= _MOST_ELEMENTS or mine.shape != its.shape:
        return _cut(print_literal(one)), _cut(print_literal(other))
    width = mine.dtype.itemsize
    bits = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, width) for a in (mine, its)]
    first = int(np.flatnonzero((bits[0] != bits[1]).any(axis=1))[0])
    index = ", ".join(str(int(k)) for k in np.unravel_index(first, mine.shape))
    return f"{mine.reshape(-1)[first]} at [{index}]", f"{its.reshape(-1)[first]} at [{index}]"


def _as_text(instruction: Instruction) -> str:
    """Without metadata; of a large constant without its value."""
    op = instruction.op
    if isinstance(op, Constant) and op.literal.array is not None and op.literal.array.size > _MOST_ELEMENTS:
        op = replace(op, literal=replace(op.literal, array=None))
    return print_instruction(instruction.replace(metadata=None, op=op))


def _frame_near(module: Module, computation: Computation, instruction: Instruction | None) -> str:
    """`w2.py:12`: the user's line of the instruction, or of the first that uses its value."""
    if instruction is None:
        return ""
    found = _user_with_frame(module, computation, instruction)
    return "" if found is None else _line(module.frame(found) or "")


def _user_with_frame(module: Module, computation: Computation, instruction: Instruction) -> Instruction | None:
    """The nearest instruction that has a line of the user: itself, one that uses its value, one that uses that."""
    waiting, seen = [instruction], {instruction.name}
    while waiting:
        each = waiting.pop(0)
        if module.frame(each):
            return each
        for name in computation.users[each.name]:
            if name not in seen:
                seen.add(name)
                waiting.append(computation[name])
    return None


def _line(frame: str) -> str:
    """`/home/me/w2.py:12:8 in scaled` -> `w2.py:12`."""
    found = _LINE.fullmatch(frame)
    return frame if found is None else f"{os.path.basename(found['file'])}:{found['line']}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


__all__ = ["MOST", "differences"]
