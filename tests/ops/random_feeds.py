"""Random programs that take and give items in loops, branches and calls, with what has to come out of them.

A program keeps an f32[2] that statements change; the expected items are found by walking through the statements, not by
the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from hypothesis import strategies as st

ACC = "f32[2]"
RECEIVES, SENDS = 5, 6  # channels

Statement = tuple[Any, ...]
BODIES = st.deferred(lambda: st.lists(STATEMENTS, max_size=4))
SIMPLE = st.sampled_from([("add",), ("pair",), ("drop",), ("give",), ("give_pair",), ("send",), ("unread",)])
STATEMENTS: st.SearchStrategy[Statement] = st.one_of(
    SIMPLE,
    SIMPLE,
    st.tuples(st.just("loop"), st.integers(0, 3), BODIES),
    st.tuples(st.just("branch"), BODIES, BODIES),
    st.tuples(st.just("call"), BODIES),
    st.tuples(st.just("receive"), BODIES, st.booleans()),
)


@dataclass
class Text:
    """A module's text while it is written."""

    computations: list[str] = field(default_factory=list)
    numbers: Callable[[], int] = field(default_factory=lambda: count().__next__)

    def name(self, prefix: str) -> str:
        return f"{prefix}{self.numbers()}"

    def computation(self, body: list[Statement], entry: bool = False) -> str:
        """A computation from f32[2] to f32[2]; its name."""
        name, lines = self.name("c"), [f"  acc = {ACC} parameter(0)", "  t = token[] after-all()"]
        root = self.statements(body, "acc", lines)
        lines.append(f"  ROOT {self.name('root')} = {ACC} copy({root})")
        self.computations.append(f"{'ENTRY ' if entry else ''}{name} {{\n" + "\n".join(lines) + "\n}")
        return name

    def take(self, shape: str, lines: list[str]) -> str:
        taken, value = self.name("f"), self.name("v")
        lines.append(f"  {taken} = ({shape}, token[]) infeed(t)")
        lines.append(f"  {value} = {shape} get-tuple-element({taken}), index=0")
        return value

    def add(self, acc: str, value: str, lines: list[str]) -> str:
        total = self.name("s")
        lines.append(f"  {total} = {ACC} add({acc}, {value})")
        return total

    def statements(self, body: list[Statement], acc: str, lines: list[str]) -> str:
        for statement in body:
            acc = getattr(self, statement[0] + "_")(acc, lines, *statement[1:])
        return acc

    def add_(self, acc: str, lines: list[str]) -> str:
        return self.add(acc, self.take(ACC, lines), lines)

    def pair_(self, acc: str, lines: list[str]) -> str:
        pair, whole, real = self.take("(s32[2], (pred[]))", lines), self.name("i"), self.name("x")
        lines.append(f"  {whole} = s32[2] get-tuple-element({pair}), index=0")
        lines.append(f"  {real} = {ACC} convert({whole})")
        return self.add(acc, real, lines)

    def drop_(self, acc: str, lines: list[str]) -> str:
        self.take("u8[3]", lines)
        return acc

    def unread_(self, acc: str, lines: list[str]) -> str:
        """A call whose result nobody reads."""
        called = self.computation([("add",), ("give",)])
        lines.append(f"  {self.name('u')} = {ACC} call({acc}), to_apply={called}")
        return acc

    def give_(self, acc: str, lines: list[str]) -> str:
        lines.append(f"  {self.name('o')} = token[] outfeed({acc}, t), outfeed_shape={ACC}")
        return acc

    def give_pair_(self, acc: str, lines: list[str]) -> str:
        pair, one = self.name("p"), self.name("k")
        lines.append(f"  {one} = s8[] constant(7)")
        lines.append(f"  {pair} = ({ACC}, s8[]) tuple({acc}, {one})")
        lines.append(f"  {self.name('o')} = token[] outfeed({pair}, t), outfeed_shape=({ACC}, s8[])")
        return acc

    def send_(self, acc: str, lines: list[str]) -> str:
        sent, host = self.name("s"), f"channel_id={SENDS}, is_host_transfer=true"
        lines.append(f"  {sent} = ({ACC}, u32[], token[]) send({acc}, t), {host}")
        lines.append(f"  {self.name('d')} = token[] send-done({sent}), {host}")
        return acc

    def receive_(self, acc: str, lines: list[str], between: list[Statement], twice: bool) -> str:
        """Two receives may end in the other order; statements stand between begin and end."""
        host = f"channel_id={RECEIVES}, is_host_transfer=true"
        begun = [self.name("r") for _ in range(1 + twice)]
        lines += [f"  {name} = ({ACC}, u32[], token[]) recv(t), {host}" for name in begun]
        acc = self.statements([s for s in between if s[0] != "receive"], acc, lines)
        for name in reversed(begun):
            done, value = self.name("d"), self.name("v")
            lines.append(f"  {done} = ({ACC}, token[]) recv-done({name}), {host}")
            lines.append(f"  {value} = {ACC} get-tuple-element({done}), index=0")
            doubled = self.add(acc, acc, lines)
            acc = self.add(doubled, value, lines)
        return acc

    def call_(self, acc: str, lines: list[str], body: list[Statement]) -> str:
        name = self.name("a")
        lines.append(f"  {name} = {ACC} call({acc}), to_apply={self.computation(body)}")
        return name

    def branch_(self, acc: str, lines: list[str], true: list[Statement], false: list[Statement]) -> str:
        which, name = self.take("pred[]", lines), self.name("b")
        branches = f"true_computation={self.computation(true)}, false_computation={self.computation(false)}"
        lines.append(f"  {name} = {ACC} conditional({which}, {acc}, {acc}), {branches}")
        return name

    def loop_(self, acc: str, lines: list[str], trips: int, body: list[Statement]) -> str:
        state, called = f"(s32[], {ACC})", self.computation(body)
        step, test = self.name("c"), self.name("c")
        head = f"  p = {state} parameter(0)\n  i = s32[] get-tuple-element(p), index=0\n"
        self.computations.append(
            f"{step} {{\n{head}  v = {ACC} get-tuple-element(p), index=1\n  one = s32[] constant(1)\n"
            f"  j = s32[] add(i, one)\n  w = {ACC} call(v), to_apply={called}\n  ROOT r = {state} tuple(j, w)\n}}"
        )
        self.computations.append(
            f"{test} {{\n{head}  n = s32[] constant({trips})\n  ROOT l = pred[] compare(i, n), direction=LT\n}}"
        )
        zero, begin, loop, name = (self.name(prefix) for prefix in "ztwa")
        lines.append(f"  {zero} = s32[] constant(0)")
        lines.append(f"  {begin} = {state} tuple({zero}, {acc})")
        lines.append(f"  {loop} = {state} while({begin}), condition={test}, body={step}")
        lines.append(f"  {name} = {ACC} get-tuple-element({loop}), index=1")
        return name


@dataclass
class Walk:
    """What a program takes and gives, found by walking through its statements. Values are small whole numbers."""

    rng: np.random.Generator
    infeed: list[Any] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    outfeed: list[Any] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    def value(self) -> np.ndarray[Any, Any]:
        return self.rng.integers(0, 9, 2).astype(np.float32)

    def statements(self, body: list[Statement], acc: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        for kind, *rest in body:
            if kind == "add":
                self.infeed.append(self.value())
                acc = acc + self.infeed[-1]
            elif kind == "pair":
                whole = self.value().astype(np.int32)
                self.infeed.append((whole, (np.array(True),)))
                acc = acc + whole.astype(np.float32)
            elif kind == "drop":
                self.infeed.append(np.arange(3, dtype=np.uint8))
            elif kind == "unread":
                self.statements([("add",), ("give",)], acc)
            elif kind == "give":
                self.outfeed.append(acc)
            elif kind == "give_pair":
                self.outfeed.append((acc, np.int8(7)))
            elif kind == "send":
                self.sent.append(acc)
            elif kind == "loop":
                for _ in range(rest[0]):
                    acc = self.statements(rest[1], acc)
            elif kind == "branch":
                which = bool(self.rng.integers(0, 2))
                self.infeed.append(np.array(which))
                acc = self.statements(rest[0 if which else 1], acc)
            elif kind == "call":
                acc = self.statements(rest[0], acc)
            else:
                between, twice = rest
                asked = [self.value() for _ in range(1 + twice)]
                self.received += asked
                acc = self.statements([s for s in between if s[0] != "receive"], acc)
                for value in reversed(asked):
                    acc = acc + acc + value
        return acc


def module_text(body: list[Statement]) -> str:
    text = Text()
    text.computation(body, entry=True)
    return "HloModule feeds\n" + "\n".join(text.computations) + "\n"
