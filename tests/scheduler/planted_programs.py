"""Random programs with an order in which they run: a sequence of steps of all devices, of which each program has its
own, and then in any order that its data allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.channel_case import annotated
from tests.deadlock_programs import SUM

STATE = "(s32[], f32[4])"


@dataclass
class Line:
    """name, text, names of what it reads or waits for.  kinds: of the collectives in it that nothing but their order
    tells apart."""

    name: str
    text: str
    after: tuple[str, ...]
    kinds: frozenset[str] = frozenset()


@dataclass
class Body:
    """What one device does in one computation. values: names of f32[4]."""

    lines: list[Line] = field(default_factory=list)
    values: list[str] = field(default_factory=lambda: ["x"])


@dataclass
class PlantedPrograms:
    """pick: gives a number from 0 to below the one that it is asked for. Programs for `devices` replicas.

    in_branches: one program with a branch for each device, instead of one for each.  steps: at most.
    """

    pick: Callable[[int], int]
    devices: int
    in_branches: bool
    steps: int = 8
    number: int = 0
    called: list[list[str]] = field(default_factory=list)

    def texts(self) -> list[tuple[Sequence[int], str]]:
        """(devices, text) of each program."""
        self.called = [[] for _ in range(self.devices)]
        bodies = {device: Body() for device in range(self.devices)}
        self._fill(bodies, 1)
        written = [self._written(bodies[device]) for device in range(self.devices)]
        if not self.in_branches:
            return [
                ((d,), "\n".join([SUM, *self.called[d], f"ENTRY main {{\n  x = f32[4] parameter(0)\n{text}}}"]))
                for d, text in enumerate(written)
            ]
        branches = [f"b{d} {{\n  x = f32[4] parameter(0)\n{text}}}" for d, text in enumerate(written)]
        names, values = ", ".join(f"b{d}" for d in range(self.devices)), ", ".join(["x"] * self.devices)
        entry = f"""ENTRY main {{
  x = f32[4] parameter(0)
  id = u32[] replica-id()
  which = s32[] convert(id)
  ROOT r = f32[4] conditional(which, {values}), branch_computations={{{names}}}
}}"""
        called = [text for texts in self.called for text in texts]
        return [(range(self.devices), "\n".join([SUM, *called, *branches, entry]))]

    def _fill(self, bodies: dict[int, Body], depth: int) -> None:
        """Steps one after the other, each with the ends of what earlier ones have begun anywhere behind it."""
        open_: list[Callable[[], None]] = []
        for _ in range(1 + self.pick(self.steps if depth else 3)):
            while open_ and not self.pick(2):
                open_.pop(self.pick(len(open_)))()
            self.number += 1
            kind = self.pick(5 if depth and len(bodies) > 1 else 4)
            if kind < 2:
                open_ += self._transfer(bodies)
            elif kind == 4:
                self._loop({d: bodies[d] for d in self._some(bodies)})
            else:
                open_ += self._reduce(bodies, halves=kind == 3)
        while open_:
            open_.pop(self.pick(len(open_)))()

    def _some(self, bodies: dict[int, Body]) -> list[int]:
        """Two devices or more."""
        devices = list(bodies)
        while len(devices) > 2 and self.pick(2):
            devices.pop(self.pick(len(devices)))
        return devices

    def _value(self, body: Body) -> str:
        """Mostly not the last one, so that much may change places."""
        return body.values[self.pick(len(body.values))] if not self.pick(3) else "x"

    def _transfer(self, bodies: dict[int, Body]) -> list[Callable[[], None]]:
        k, devices = self.number, self._some(bodies)
        source = devices.pop(self.pick(len(devices)))
        target = devices[self.pick(len(devices))]
        rest = f"channel_id={k}" + (f", {annotated(f'{{{{{source},{target}}}}}')}" if self.in_branches else "")
        one, other = bodies[source], bodies[target]
        value = self._value(one)
        context = "(f32[4], u32[], token[])"
        send = Line(f"s{k}", f"s{k} = {context} send({value}, t), {rest}", (value, "t"))
        recv = Line(f"c{k}", f"c{k} = {context} recv(t), {rest}", ("t",))
        for body, line in ((one, send), (other, recv)) if self.pick(2) else ((other, recv), (one, send)):
            body.lines.append(line)

        def sent() -> None:
            one.lines.append(Line(f"sd{k}", f"sd{k} = token[] send-done(s{k}), channel_id={k}", (f"s{k}",)))

        def received() -> None:
            done = f"rd{k} = (f32[4], token[]) recv-done(c{k}), channel_id={k}"
            other.lines.append(Line(f"rd{k}", done, (f"c{k}",)))
            other.lines.append(Line(f"v{k}", f"v{k} = f32[4] get-tuple-element(rd{k}), index=0", (f"rd{k}",)))
            other.values.append(f"v{k}")

        return [sent, received]

    def _reduce(self, bodies: dict[int, Body], *, halves: bool) -> list[Callable[[], None]]:
        """With a channel of its own, or with none: then those of the same group stay in order."""
        k, members = self.number, sorted(self._some(bodies))
        alone = "".join(f",{{{d}}}" for d in range(self.devices) if d not in members)
        channel = f"channel_id={k}, " if self.pick(2) else ""
        rest = f"{channel}replica_groups={{{{{','.join(map(str, members))}}}{alone}}}, to_apply=sum"
        kinds: frozenset[str] = frozenset() if channel else frozenset([str(members)])
        for device in members:
            body = bodies[device]
            value = self._value(body)
            name, opcode = (f"b{k}", "all-reduce-start") if halves else (f"v{k}", "all-reduce")
            body.lines.append(Line(name, f"{name} = f32[4] {opcode}({value}), {rest}", (value,), kinds))
            if not halves:
                body.values.append(f"v{k}")

        def ended(body: Body) -> None:
            body.lines.append(Line(f"v{k}", f"v{k} = f32[4] all-reduce-done(b{k})", (f"b{k}",)))
            body.values.append(f"v{k}")

        return [partial(ended, bodies[device]) for device in members] if halves else []

    def _loop(self, bodies: dict[int, Body]) -> None:
        """The same number of turns on some devices, with steps of their own."""
        k, inside = self.number, {device: Body() for device in bodies}
        self._fill(inside, 0)
        for device, body in bodies.items():
            name = f"w{k}.{device}"
            kinds = frozenset(kind for line in inside[device].lines for kind in line.kinds)
            text = self._written(inside[device]).replace("ROOT r =", "r =")
            self.called[device] += [
                f"{name}.body {{\n  p = {STATE} parameter(0)\n  i = s32[] get-tuple-element(p), index=0\n"
                f"  x = f32[4] get-tuple-element(p), index=1\n{text}  one = s32[] constant(1)\n"
                f"  j = s32[] add(i, one)\n  ROOT o = {STATE} tuple(j, r)\n}}",
                f"{name}.more {{\n  p = {STATE} parameter(0)\n  i = s32[] get-tuple-element(p), index=0\n"
                "  n = s32[] constant(2)\n  ROOT c = pred[] compare(i, n), direction=LT\n}",
            ]
            value = self._value(body)
            body.lines += [
                Line(f"z{k}", f"z{k} = s32[] constant(0)", ()),
                Line(f"q{k}", f"q{k} = {STATE} tuple(z{k}, {value})", (f"z{k}", value)),
                Line(
                    f"w{k}", f"w{k} = {STATE} while(q{k}), condition={name}.more, body={name}.body", (f"q{k}",), kinds
                ),
                Line(f"v{k}", f"v{k} = f32[4] get-tuple-element(w{k}), index=1", (f"w{k}",)),
            ]
            body.values.append(f"v{k}")

    def _written(self, body: Body) -> str:
        """The lines in any order that is possible, with the sum of all values behind them."""
        names = {line.name for line in body.lines}
        waiting, lines = list(body.lines), ["t = token[] after-all()"]
        done: set[str] = set()
        while waiting:
            ready = [
                line
                for n, line in enumerate(waiting)
                if all(name in done or name not in names for name in line.after)
                and all(line.kinds.isdisjoint(other.kinds) for other in waiting[:n])
            ]
            line = ready[self.pick(len(ready))]
            waiting.remove(line)
            done.add(line.name)
            lines.append(line.text)
        total = "x"
        for n, value in enumerate(body.values[1:]):
            lines.append(f"sum{n} = f32[4] add({total}, {value})")
            total = f"sum{n}"
        return "".join(f"  {text}\n" for text in [*lines, f"ROOT r = f32[4] negate({total})"])
