"""Random programs of sends and recvs that end on every device, seeded.

All devices run one program, and what waits comes after all that it may wait for: the starts of a transfer stand before
its dones, and fewer than RING are in flight on a channel.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CHANNELS = 4  # each has a size of its own, so that any of its sends fits any of its recvs
SIZES = (1, 3, 700, 9000)
TRIPS = 3


@dataclass
class RandomChannels:
    """text: of a module for replicas x partitions devices.  arguments: by device.  distinct: no two channels carry
    values of one shape."""

    seed: int
    distinct: bool = False
    replicas: int = 1
    partitions: int = 1
    text: str = ""
    arguments: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._names = 0
        self.replicas, self.partitions = self._random.choice([(2, 1), (3, 1), (4, 1), (2, 2), (1, 3)])
        self._sizes = [self._random.choice(SIZES) for _ in range(CHANNELS)]
        if self.distinct:
            self._sizes = self._random.sample(SIZES, CHANNELS)
        self._called: list[str] = []
        entry = self._entry()
        self.text = "\n".join([f"HloModule random_{self.seed}", *self._called, entry])
        values = np.random.default_rng(self.seed)
        for _ in range(self.replicas * self.partitions):
            row = [values.integers(-9, 9, size).astype(np.float32) for size in self._sizes]
            self.arguments.append(row)

    # --- text

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}.{self._names}"

    def _shape(self, channel: int) -> str:
        return f"f32[{self._sizes[channel]}]"

    def _context(self, channel: int) -> str:
        return f"({self._shape(channel)}, u32[], token[])"

    def _attributes(self, channel: int, *, loop: bool) -> str:
        """The ids are partitions on channels above 0 where there are several."""
        across = self.partitions if channel and self.partitions > 1 else self.replicas
        count = across if across > 1 else self.replicas * self.partitions
        ids = list(range(count))
        targets = ids[:]
        while any(a == b for a, b in zip(ids, targets, strict=True)):
            self._random.shuffle(targets)
        pairs = [pair for pair in zip(ids, targets, strict=True) if self._random.random() < 0.8]
        found = {"source_target_pairs": _braces(pairs)}
        if self._random.random() < 0.3:
            found["pipeline"] = self._random.choice("01")
        if loop and pairs and self._random.random() < 0.4:
            bounds = [sorted(self._random.choices(range(-1, TRIPS + 2), k=2)) for _ in pairs]
            found["validation"] = "invalid" if self._random.random() < 0.2 else _braces(bounds)
        return "frontend_attributes={" + ",".join(f'_xla_send_recv_{k}="{v}"' for k, v in found.items()) + "}"

    def _combine(self, lines: list[str], channel: int, a: str, b: str) -> str:
        name = self._name("v")
        opcode = self._random.choice(["add", "subtract", "maximum"])
        lines.append(f"{name} = {self._shape(channel)} {opcode}({a}, {b})")
        return name

    def _starts(self, lines: list[str], channel: int, value: str, *, loop: bool) -> tuple[str, str]:
        """A recv and a send in any order: their names."""
        token, recv, send = self._name("t"), self._name("r"), self._name("s")
        lines.append(f"{token} = token[] after-all()")
        rest = f"channel_id={channel}, {self._attributes(channel, loop=loop)}"
        both = [
            f"{recv} = {self._context(channel)} recv({token}), {rest}",
            f"{send} = {self._context(channel)} send({value}, {token}), {rest}",
        ]
        lines += self._random.sample(both, 2)
        return recv, send

    def _dones(self, lines: list[str], channel: int, recv: str, send: str) -> str:
        """Both dones in any order: the value's name."""
        done, sent, value = self._name("rd"), self._name("sd"), self._name("v")
        both = [
            f"{done} = ({self._shape(channel)}, token[]) recv-done({recv}), channel_id={channel}",
            f"{sent} = token[] send-done({send}), channel_id={channel}",
        ]
        lines += self._random.sample(both, 2)
        lines.append(f"{value} = {self._shape(channel)} get-tuple-element({done}), index=0")
        return value

    def _straight(self, lines: list[str], values: list[str], steps: int, *, loop: bool) -> None:
        """Transfers whose starts and dones mix; `values` has one of each channel's shape and is brought up to date."""
        open_: list[tuple[int, str, str]] = []
        for _ in range(steps):
            channel = self._random.randrange(CHANNELS)
            if len(open_) < 5 and self._random.random() < 0.6:
                open_.append((channel, *self._starts(lines, channel, values[channel], loop=loop)))
            elif open_:
                channel, recv, send = open_.pop(self._random.randrange(len(open_)))
                got = self._dones(lines, channel, recv, send)
                values[channel] = self._combine(lines, channel, values[channel], got)
            else:
                values[channel] = self._combine(lines, channel, values[channel], values[channel])
        for channel, recv, send in open_:
            if self._random.random() < 0.5:  # through a tuple
                pair, first, second = self._name("p"), self._name("c"), self._name("c")
                context = self._context(channel)
                lines.append(f"{pair} = ({context}, {context}) tuple({recv}, {send})")
                lines.append(f"{first} = {context} get-tuple-element({pair}), index=0")
                lines.append(f"{second} = {context} get-tuple-element({pair}), index=1")
                recv, send = first, second
            got = self._dones(lines, channel, recv, send)
            values[channel] = self._combine(lines, channel, values[channel], got)

    def _loop(self, lines: list[str], values: list[str]) -> None:
        """TRIPS iterations; a transfer or two begin in one and end in the next."""
        carried = self._random.sample(range(CHANNELS), self._random.randrange(3))
        contexts = [name for c in carried for name in self._starts(lines, c, values[c], loop=False)]
        shapes = ["s32[]", *map(self._shape, range(CHANNELS))] + [self._context(c) for c in carried for _ in range(2)]
        state = f"({', '.join(shapes)})"
        body, more = self._name("body"), self._name("more")
        inside: list[str] = [f"p = {state} parameter(0)"]
        names = [self._name("e") for _ in shapes]
        for k, (name, shape) in enumerate(zip(names, shapes, strict=True)):
            inside.append(f"{name} = {shape} get-tuple-element(p), index={k}")
        inner = names[1 : 1 + CHANNELS]
        for k, channel in enumerate(carried):
            got = self._dones(inside, channel, *names[1 + CHANNELS + 2 * k : 3 + CHANNELS + 2 * k])
            inner[channel] = self._combine(inside, channel, inner[channel], got)
        self._straight(inside, inner, self._random.randrange(6), loop=True)
        following = [name for c in carried for name in self._starts(inside, c, inner[c], loop=False)]
        inside += ["one = s32[] constant(1)", f"j = s32[] add({names[0]}, one)"]
        inside.append(f"ROOT q = {state} tuple({', '.join(['j', *inner, *following])})")
        self._called.append(_computation(body, inside))
        test = [f"p = {state} parameter(0)", "i = s32[] get-tuple-element(p), index=0", f"n = s32[] constant({TRIPS})"]
        self._called.append(_computation(more, [*test, "ROOT c = pred[] compare(i, n), direction=LT"]))
        zero, begin, end = self._name("z"), self._name("w"), self._name("w")
        lines.append(f"{zero} = s32[] constant(0)")
        lines.append(f"{begin} = {state} tuple({', '.join([zero, *values, *contexts])})")
        lines.append(f"{end} = {state} while({begin}), condition={more}, body={body}")
        for k in range(CHANNELS):
            values[k] = self._name("v")
            lines.append(f"{values[k]} = {self._shape(k)} get-tuple-element({end}), index={k + 1}")
        for k, channel in enumerate(carried):
            ends = [self._name("c"), self._name("c")]
            for m, name in enumerate(ends):
                index = 1 + CHANNELS + 2 * k + m
                lines.append(f"{name} = {self._context(channel)} get-tuple-element({end}), index={index}")
            got = self._dones(lines, channel, *ends)
            values[channel] = self._combine(lines, channel, values[channel], got)

    def _entry(self) -> str:
        lines = [f"a.{k} = {self._shape(k)} parameter({k})" for k in range(CHANNELS)]
        values = [f"a.{k}" for k in range(CHANNELS)]
        for _ in range(self._random.randrange(1, 4)):
            if self._random.random() < 0.5:
                self._loop(lines, values)
            else:
                self._straight(lines, values, self._random.randrange(1, 9), loop=False)
        shapes = ", ".join(map(self._shape, range(CHANNELS)))
        lines.append(f"ROOT all = ({shapes}) tuple({', '.join(values)})")
        return _computation("ENTRY main", lines)


def _braces(pairs: Any) -> str:
    return "{" + ",".join(f"{{{a},{b}}}" for a, b in pairs) + "}"


def _computation(name: str, lines: list[str]) -> str:
    return f"{name} {{\n  " + "\n  ".join(lines) + "\n}"
