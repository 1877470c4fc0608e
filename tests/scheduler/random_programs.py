"""Random programs that may or may not deadlock: rounds, transfers, pairs that enclose others, calls, branches, loops.

What decides a branch or a loop is a constant, the device's id, an argument, or the sum of an argument over all devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.channel_case import annotated

SHAPE = "f32[2]"
CONTEXT = f"({SHAPE}, u32[], token[])"
STATE = f"(s32[], s32[], {SHAPE}, s32[])"

Draw = Callable[[st.SearchStrategy[int]], int]

HEADER = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
sum { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }
more { p = STATE parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, n), direction=LT }
""".replace("STATE", STATE)


@dataclass
class RandomProgram:
    """draw: gives a number of a range. A program for `devices` replicas; arguments: f32[2] and s32[] on each."""

    draw: Draw
    devices: int
    called: list[str] = field(default_factory=list)
    names: int = 0
    left: int = 9

    def text(self) -> str:
        lines = [f"  x = {SHAPE} parameter(0)", "  k = s32[] parameter(1)"]
        last = self._body(lines, "x", "k", 2)
        lines.append(f"  ROOT r = {SHAPE} negate({last})")
        return "\n".join(["HloModule random, is_scheduled=true", HEADER, *self.called, "ENTRY main {", *lines, "}"])

    def _pick(self, count: int) -> int:
        return self.draw(st.integers(0, count - 1))

    def _name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def _groups(self) -> str:
        """All, or a division into two or three."""
        parts: list[list[int]] = [[] for _ in range(1 + self._pick(3))]
        for device in range(self.devices):
            parts[self._pick(len(parts))].append(device)
        return "{" + ",".join("{" + ",".join(map(str, part)) + "}" for part in parts if part) + "}"

    def _pairs(self) -> str:
        targets, pairs = list(range(self.devices)), []
        for source in range(self.devices):
            target = targets[self._pick(len(targets))]
            if target != source and self._pick(4):
                targets.remove(target)
                pairs.append((source, target))
        return "{" + ",".join(f"{{{s},{t}}}" for s, t in pairs) + "}"

    def _body(self, lines: list[str], value: str, k: str, depth: int) -> str:
        for _ in range(1 + self._pick(3)):
            if self.left <= 0:
                break
            self.left -= 1
            value = self._statement(lines, value, k, depth)
        return value

    def _statement(self, lines: list[str], value: str, k: str, depth: int) -> str:
        kind = self._pick(9 if depth else 5)
        out = self._name()
        if kind == 0:
            lines.append(f"  {out} = {SHAPE} all-reduce({value}), to_apply=add, replica_groups={self._groups()}")
        elif kind == 1:
            lines.append(f"  {out} = {SHAPE} collective-permute({value}), source_target_pairs={self._pairs()}")
        elif kind == 2:
            return self._transfer(lines, value, k, out, depth)
        elif kind == 3:
            start = self._name()
            groups = self._groups()
            lines.append(f"  {start} = {SHAPE} all-reduce-start({value}), to_apply=add, replica_groups={groups}")
            inner = self._body(lines, value, k, depth)
            lines.append(f"  {out}.d = {SHAPE} all-reduce-done({start})")
            lines.append(f"  {out} = {SHAPE} add({out}.d, {inner})")
        elif kind == 4:
            start, context = self._name(), f"({SHAPE}, {SHAPE})"
            pairs = self._pairs()
            lines.append(f"  {start} = {context} collective-permute-start({value}), source_target_pairs={pairs}")
            inner = self._body(lines, value, k, depth)
            lines.append(f"  {out}.d = {SHAPE} collective-permute-done({start})")
            lines.append(f"  {out} = {SHAPE} add({out}.d, {inner})")
        elif kind in (5, 6):
            self._conditional(lines, value, k, out, depth)
        elif kind == 7:
            self._call(lines, value, k, out, depth)
        else:
            self._while(lines, value, k, out, depth)
        return out

    def _call(self, lines: list[str], value: str, k: str, out: str, depth: int) -> None:
        name = f"f.{self._name()}"
        inside = [f"  x = {SHAPE} parameter(0)", "  k = s32[] parameter(1)"]
        last = self._body(inside, "x", "k", depth - 1)
        inside.append(f"  ROOT r = {SHAPE} negate({last})")
        self.called.append("\n".join([f"{name} {{", *inside, "}"]))
        lines.append(f"  {out} = {SHAPE} call({value}, {k}), to_apply={name}")

    def _transfer(self, lines: list[str], value: str, k: str, out: str, depth: int) -> str:
        """Sometimes with something else between what begins it and what ends it."""
        channel = self._pick(2)
        rest = f"channel_id={channel}, {annotated(self._pairs(), pipeline='0')}"
        token = self._name()
        lines.append(f"  {token} = token[] after-all()")
        texts = {
            "r": f"  {out}.r = {CONTEXT} recv({token}), {rest}",
            "s": f"  {out}.s = {CONTEXT} send({value}, {token}), {rest}",
            "rd": f"  {out}.rd = ({SHAPE}, token[]) recv-done({out}.r), channel_id={channel}",
            "sd": f"  {out}.sd = token[] send-done({out}.s), channel_id={channel}",
        }
        orders = (
            ["r", "s", "rd", "sd"], ["s", "r", "sd", "rd"], ["r", "rd", "s", "sd"], ["s", "sd", "r", "rd"],
            ["r", "s", "sd", "rd"],
        )  # fmt: skip
        order = orders[self._pick(len(orders))]
        between = self._pick(8)
        for place, part in enumerate(order):
            lines.append(texts[part])
            if place + 1 == between:  # up to three of the four
                self._body(lines, value, k, depth)
        lines.append(f"  {out} = {SHAPE} get-tuple-element({out}.rd), index=0")
        return out

    def _number(self, lines: list[str], k: str) -> str:
        """An s32 that decides."""
        name, kind = self._name(), self._pick(4)
        if kind == 0:
            lines.append(f"  {name} = s32[] constant({self._pick(3)})")
        elif kind == 1:
            lines += [f"  {name}.u = u32[] replica-id()", f"  {name} = s32[] convert({name}.u)"]
        elif kind == 2:
            return k
        else:
            lines.append(f"  {name} = s32[] all-reduce({k}), to_apply=sum, replica_groups={{}}")
        return name

    def _conditional(self, lines: list[str], value: str, k: str, out: str, depth: int) -> None:
        number = self._number(lines, k)
        branches = []
        for _ in range(2 + self._pick(2)):
            name = f"b.{self._name()}"
            inside: list[str] = [f"  p = ({SHAPE}, s32[]) parameter(0)", f"  x = {SHAPE} get-tuple-element(p), index=0",
                                 "  k = s32[] get-tuple-element(p), index=1"]  # fmt: skip
            last = "x" if not self._pick(3) else self._body(inside, "x", "k", depth - 1)
            inside.append(f"  ROOT r = {SHAPE} negate({last})")
            self.called.append("\n".join([f"{name} {{", *inside, "}"]))
            branches.append(name)
        given = ", ".join([number, *[f"{out}.t"] * len(branches)])
        lines.append(f"  {out}.t = ({SHAPE}, s32[]) tuple({value}, {k})")
        lines.append(f"  {out} = {SHAPE} conditional({given}), branch_computations={{{', '.join(branches)}}}")

    def _while(self, lines: list[str], value: str, k: str, out: str, depth: int) -> None:
        number = self._number(lines, k)
        name = f"w.{self._name()}"
        inside = [f"  p = {STATE} parameter(0)", "  i = s32[] get-tuple-element(p), index=0",
                  "  n = s32[] get-tuple-element(p), index=1", f"  x = {SHAPE} get-tuple-element(p), index=2",
                  "  k = s32[] get-tuple-element(p), index=3", "  one = s32[] constant(1)",
                  "  j = s32[] add(i, one)"]  # fmt: skip
        last = self._body(inside, "x", "k", depth - 1)
        inside.append(f"  ROOT q = {STATE} tuple(j, n, {last}, k)")
        self.called.append("\n".join([f"{name} {{", *inside, "}"]))
        lines.append(f"  {out}.z = s32[] constant(0)")
        lines.append(f"  {out}.p = {STATE} tuple({out}.z, {number}, {value}, {k})")
        lines.append(f"  {out}.w = {STATE} while({out}.p), condition=more, body={name}")
        lines.append(f"  {out} = {SHAPE} get-tuple-element({out}.w), index=2")
