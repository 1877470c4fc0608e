"""Cases for every transport: collective x group mode x group order x element type x shape x reduction x place.

A case is a module's text, the arguments of every device, and what each must get (tests/collectives/drawn.py). They are
drawn by Hypothesis for given counts, so that a transport is whatever runs a case: `outs[d][k] = run(case)`; `check`
compares bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distxla.ir.element_type import DATA_TYPES, ElementType
from distxla.ir.shape import Shape
from tests.collectives.drawn import Array, Arrays, Collective, Counts, collectives

Run = Callable[["Case"], Sequence[Sequence[Any]]]

WHERE = ("entry", "loop", "branch", "call", "start and done", "asynchronous computation")


@dataclass(frozen=True)
class Case:
    """args[d][k] and expected[d][k] by flattened device id."""

    text: str
    counts: Counts
    args: list[Arrays] = field(repr=False)
    expected: list[Arrays] = field(repr=False)

    @property
    def devices(self) -> int:
        return prod(self.counts)


def text_of(shapes: Sequence[Shape]) -> str:
    return str(shapes[0]) if len(shapes) == 1 else f"({', '.join(map(str, shapes))})"


def check(case: Case, run: Run) -> None:
    """AssertionError, with the text, for the first leaf whose bits are not the formula's; any NaN equals any NaN."""
    outs = run(case)
    for device, (row, wanted) in enumerate(zip(outs, case.expected, strict=True)):
        for leaf, (found, array) in enumerate(zip(row, wanted, strict=True)):
            assert same_bits(np.asarray(found), array), (
                f"device {device}, leaf {leaf}: {found}, not {array}\n{case.text}"
            )


def same_bits(a: Array, b: Array) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    width = a.dtype.itemsize
    raw = [np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, width) for x in (a, b)]
    differs = (raw[0] != raw[1]).any(axis=1)
    if a.dtype.kind not in "biu":
        nans = (np.isnan(a.reshape(-1)) & np.isnan(b.reshape(-1))) if a.dtype.kind in "fcV" else False
        differs &= ~nans
    return not differs.any()


# --- where a collective stands --------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn, counts: Counts, kinds: Sequence[ElementType] = DATA_TYPES) -> Case:
    """One collective somewhere in a program."""
    collective = draw(collectives(counts, kinds))
    return build(collective, counts, draw(st.sampled_from(WHERE)), draw(st.integers(0, 2**32 - 1)))


def build(collective: Collective, counts: Counts, where: str, seed: int) -> Case:
    """The collective in one of WHERE; a loop runs it three times where it keeps its operands' shapes, else once."""
    rng = np.random.default_rng(seed)
    args = [collective.inputs(rng) for _ in range(prod(counts))]
    rounds = 3 if where == "loop" and collective.keeps_shapes() else 1
    expected = args
    for _ in range(rounds):
        expected = collective.everywhere(expected)
    case = Case("", counts, args, expected)
    text = _program(collective, where, rounds)
    if where == "branch":  # taken by a predicate that is the last argument
        case = replace(case, args=[[*row, np.array(True)] for row in args])
    return replace(case, text=text)


def _program(collective: Collective, where: str, rounds: int) -> str:
    shapes_, result = collective.operands, collective.result
    parameters = [f"p{k} = {s} parameter({k})" for k, s in enumerate(shapes_)]
    names = ", ".join(f"p{k}" for k in range(len(shapes_)))
    instruction = f"{collective.opcode}({names}), {collective.attributes}"
    body = "\n  ".join([*parameters, f"ROOT c = {result} {instruction}"])
    inner = f"wrapped {{\n  {body}\n}}\n"
    operands = text_of(shapes_)
    if where == "loop":
        return _loop(collective, rounds)
    if where == "branch":
        zeros = [f"z{k} = {s} broadcast(zero{k}), dimensions={{}}" for k, s in enumerate(collective.results)]
        constants = [
            f"zero{k} = {s.dtype.name}[] constant({'false' if s.dtype.name == 'pred' else _zero(s.dtype)})"
            for k, s in enumerate(collective.results)
        ]
        other = f"ROOT o = {result} " + (
            f"tuple({', '.join(f'z{k}' for k in range(len(zeros)))})" if collective.is_tuple else "copy(z0)"
        )
        taken = "t = (" + ", ".join(map(str, shapes_)) + ") parameter(0)"
        parts = [f"p{k} = {s} get-tuple-element(t), index={k}" for k, s in enumerate(shapes_)]
        lines = "\n  ".join([taken, *parts, f"ROOT c = {result} {instruction}"])
        others = "\n  ".join([taken, *constants, *zeros, other])
        flag = f"flag = pred[] parameter({len(shapes_)})"
        bundle = f"t = ({', '.join(map(str, shapes_))}) tuple({names})"
        root = f"ROOT r = {result} conditional(flag, t, t), true_computation=wrapped, false_computation=other"
        entry = "\n  ".join([*parameters, flag, bundle, root])
        computations = f"wrapped {{\n  {lines}\n}}\nother {{\n  {others}\n}}\n"
        return _module(collective, computations, entry)
    if where == "call":
        outer = "\n  ".join([*parameters, f"ROOT c = {result} call({names}), to_apply=wrapped"])
        entry = "\n  ".join([*parameters, f"ROOT r = {result} call({names}), to_apply=outer"])
        return _module(collective, f"{inner}outer {{\n  {outer}\n}}\n", entry)
    if where == "start and done" and collective.opcode in ("all-reduce", "all-gather", "collective-permute"):
        begun = {"all-reduce": result, "all-gather": f"({operands}, {result})"}.get(
            collective.opcode, f"({operands}, {result}, u32[], u32[])"
        )
        start = f"s = {begun} {collective.opcode}-start({names}), {collective.attributes}"
        done = f"ROOT d = {result} {collective.opcode}-done(s)"
        return _module(collective, "", "\n  ".join([*parameters, start, done]))
    if where in ("start and done", "asynchronous computation"):
        kinds = ", ".join(map(str, shapes_))
        start = f"s = (({kinds}), {result}, u32[]) async-start({names}), calls=wrapped"
        done = f"ROOT d = {result} async-done(s)"
        return _module(collective, inner, "\n  ".join([*parameters, start, done]))
    return _module(collective, "", body)


def _zero(kind: ElementType) -> str:
    if kind.name == "f8e8m0fnu":  # has no zero; the branch is not taken
        return "1"
    return "(0, 0)" if kind.is_complex else "0"


def _loop(collective: Collective, rounds: int) -> str:
    """State: a counter, the operands, the results so far (the operands again where the shapes are kept)."""
    kept = collective.keeps_shapes()
    operands, results = list(collective.operands), list(collective.results)
    leaves = ["s32[]", *map(str, operands), *([] if kept else map(str, results))]
    state = f"({', '.join(leaves)})"
    taken = [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0"]
    parts = [f"p{k} = {s} get-tuple-element(t), index={k + 1}" for k, s in enumerate(operands)]
    names = [f"p{k}" for k in range(len(operands))]
    result = collective.result
    lines = [*taken, *parts, "one = s32[] constant(1)", "j = s32[] add(i, one)"]
    lines.append(f"c = {result} {collective.opcode}({', '.join(names)}), {collective.attributes}")
    found = [f"c{k}" for k in range(len(results))] if collective.is_tuple else ["c"]
    if collective.is_tuple:
        lines += [f"c{k} = {s} get-tuple-element(c), index={k}" for k, s in enumerate(results)]
    lines.append(f"ROOT n = {state} tuple({', '.join(['j', *([] if kept else names), *found])})")
    test = [*taken, f"last = s32[] constant({rounds})", "ROOT g = pred[] compare(i, last), direction=LT"]
    entry = [f"p{k} = {s} parameter({k})" for k, s in enumerate(operands)]
    start = list(names)
    if not kept:
        for k, s in enumerate(results):
            zero = "false" if s.dtype.name == "pred" else _zero(s.dtype)
            entry.append(f"zero{k} = {s.dtype.name}[] constant({zero})")
            entry.append(f"z{k} = {s} broadcast(zero{k}), dimensions={{}}")
            start.append(f"z{k}")
    entry += ["i = s32[] constant(0)", f"t = {state} tuple(i, {', '.join(start)})"]
    entry.append(f"w = {state} while(t), condition=test, body=step")
    offset = 1 if kept else 1 + len(operands)
    outs = [f"o{k} = {s} get-tuple-element(w), index={offset + k}" for k, s in enumerate(results)]
    if not collective.is_tuple:
        outs[0] = f"ROOT {outs[0]}"
    else:
        outs.append(f"ROOT r = {result} tuple({', '.join(f'o{k}' for k in range(len(results)))})")
    joined = ["\n  ".join(part) for part in (lines, test, [*entry, *outs])]
    return _module(collective, f"step {{\n  {joined[0]}\n}}\ntest {{\n  {joined[1]}\n}}\n", joined[2])


def _module(collective: Collective, computations: str, entry: str) -> str:
    return f"HloModule case\n\n{collective.computations}{computations}ENTRY main {{\n  {entry}\n}}\n"
