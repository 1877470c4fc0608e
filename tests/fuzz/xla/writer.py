"""A computation that is being written: its lines, and the values that later ones may use."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.fuzz.xla.exact_values import (
    FLOATS,
    NARROW,
    SIGNED,
    Value,
    fits,
    integer_bound,
    is_inexact_type,
    shape_text,
)

MOST_ELEMENTS = 400  # of an array
DIMENSION_SIZES = (1, 2, 3, 4, 5, 8)


class Module:
    """Names and called computations of one module for some devices, which are its replicas or its partitions."""

    def __init__(self, seed: int, devices: Sequence[int]) -> None:
        self.random = random.Random(seed)
        self.devices = self.random.choice(devices)
        self.partitioned = self.devices > 1 and self.random.random() < 0.5
        self.computations: dict[str, str] = {}
        self._names = 0
        self._channels = 0

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}.{self._names}"

    def channel(self) -> str:
        """The channel_id of a collective of partitions; nothing for replicas."""
        self._channels += 1
        return f"channel_id={self._channels}, " if self.partitioned else ""

    def scalar(self, element: str, opcode: str) -> str:
        """The name of a computation of two scalars."""
        name = f"{opcode.replace('-', '_')}_{element}"
        kind = f"{element}[]"
        self.computations[name] = (
            f"{name} {{\n  {name}.a = {kind} parameter(0)\n  {name}.b = {kind} parameter(1)\n"
            f"  ROOT {name}.r = {kind} {opcode}({name}.a, {name}.b)\n}}"
        )
        return name


class Writer:
    """Appends instructions to a computation.

    collectives: whether all devices execute it, so that it may hold collectives.  depth: of control flow
        that may begin here.
    """

    def __init__(self, module: Module, *, collectives: bool, depth: int) -> None:
        self.module, self.random = module, module.random
        self.collectives, self.depth = collectives, depth
        self.lines: list[str] = []
        self.pool: list[Value] = []
        self.used: set[str] = set()

    # --- writing

    def add(self, stem: str, value: Value, text: str, operands: Sequence[Value], attributes: str = "") -> Value:
        """`stem` names the instruction; `value` describes its result, except for the name."""
        name = self.raw(stem, value.shape, text, operands, attributes)
        uniform = all(operand.uniform for operand in operands) if operands else value.uniform
        value = replace(value, name=name, uniform=uniform)
        self.pool.append(value)
        return value

    def raw(self, stem: str, shape: str, opcode: str, operands: Sequence[Value], attributes: str = "") -> str:
        name = self.module.name(stem)
        self.used.update(operand.name for operand in operands)
        tail = f", {attributes}" if attributes else ""
        self.lines.append(f"{name} = {shape} {opcode}({', '.join(o.name for o in operands)}){tail}")
        return name

    def leaves(self, name: str, values: Sequence[Value]) -> list[Value]:
        """The elements of a tuple, which are described by `values`."""
        found = []
        for k, value in enumerate(values):
            leaf = self.module.name("leaf")
            self.lines.append(f"{leaf} = {value.shape} get-tuple-element({name}), index={k}")
            found.append(value.like(leaf, value.dims))
        self.pool += found
        return found

    def body(self, name: str, root: str, shape: str) -> None:
        """Make a computation of the lines; `root`: of its last one."""
        text = "\n  ".join([*self.lines, f"ROOT {name}.root = {shape} {root}"])
        self.module.computations[name] = f"{name} {{\n  {text}\n}}"

    # --- choosing

    def dims(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        rank = self.random.randint(least, most)
        return tuple(self.random.choice(DIMENSION_SIZES) for _ in range(rank))

    def pick(self, accepts: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """One of the values, the later ones rather; None where none is accepted."""
        found = [value for value in self.pool if accepts(value)]
        if not found:
            return None
        return found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def some(self, accepts: Callable[[Value], bool] = lambda value: True, elements: Sequence[str] = FLOATS) -> Value:
        """One that is accepted, or a new array of one of `elements`."""
        return self.pick(accepts) or self.need(self.random.choice(elements), self.dims())

    def need(self, element: str, dims: tuple[int, ...]) -> Value:
        """An exact value of this shape, made where there is none."""
        if self.random.random() < 0.8:
            found = self.pick(lambda v: v.element == element and v.dims == dims and v.is_exact)
            if found is not None:
                return found
        scalar = self.pick(lambda v: v.element == element and not v.dims and v.is_exact) if dims else None
        if scalar is not None and self.random.random() < 0.5:
            return self.add("wide", scalar.like("", dims), "broadcast", [scalar], "dimensions={}")
        if dims and element not in ("pred", *NARROW) and self.random.random() < 0.3:
            dimension = self.random.randrange(len(dims))
            value = Value("", element, dims, float(max(dims)), 1.0, uniform=True)
            return self.add("count", value, "iota", [], f"iota_dimension={dimension}")
        return self.constant(element, dims)

    def constant(self, element: str, dims: tuple[int, ...] = (), numbers: Sequence[int] = range(-6, 7)) -> Value:
        step = self.random.choice([1.0, 0.5]) if is_inexact_type(element) else 1.0
        drawn = [n for n in numbers if n >= 0 or is_inexact_type(element) or element in SIGNED]

        def one() -> str:
            if element == "pred":
                return self.random.choice(["true", "false"])
            if element.startswith("c"):
                return f"({self.random.choice(drawn) * step}, {self.random.choice(drawn) * step})"
            number = self.random.choice(drawn)
            return str(number * step if is_inexact_type(element) else number)

        def nested(dims: tuple[int, ...]) -> Any:
            return "{" + ", ".join(nested(dims[1:]) for _ in range(dims[0])) + "}" if dims else one()

        name = self.module.name("constant")
        self.lines.append(f"{name} = {shape_text(element, dims)} constant({nested(dims)})")
        value = Value(name, element, dims, max(map(abs, drawn)) * step, step, uniform=True)
        self.pool.append(value)
        return value

    def index(self) -> Value:
        """A scalar integer that says where."""
        found = self.pick(lambda v: v.element in ("s32", "u32", "s64", "u8") and not v.dims)
        return found or self.constant(self.random.choice(["s32", "s64", "u8"]))

    # --- keeping numbers small

    def within(self, value: Value, bound: float, step: float) -> Value:
        """The value, cut to [-bound, bound] and to multiples of `step` (at most 1) where it is not so anyway.

        It is no complex one.
        """
        if is_inexact_type(value.element) and value.step < step:
            value = self.add("whole", replace(value, bound=value.bound + 1, step=1.0), "floor", [value])
        if value.element != "pred" and value.bound > bound:
            low, high = (self._limit(value, number) for number in (-bound, bound))
            value = self.add("cut", replace(value, bound=bound), "clamp", [low, value, high])
        return value

    def _limit(self, value: Value, number: float) -> Value:
        name = self.module.name("limit")
        if not is_inexact_type(value.element):
            number = int(number) if value.element in SIGNED else max(0, int(number))
        self.lines.append(f"{name} = {value.element}[] constant({number})")
        return Value(name, value.element, (), abs(number), uniform=True)


def sized(value: Value, name: str = "", dims: tuple[int, ...] | None = None, **known: Any) -> Value:
    """`value` with other facts; integers' bounds as they are after wrapping around."""
    made = replace(value, name=name, dims=value.dims if dims is None else dims, **known)
    if is_inexact_type(made.element) or made.element == "pred":
        return made
    return replace(made, bound=integer_bound(made.element, made.bound), step=1.0)


def is_possible(value: Value) -> bool:
    """Whether the numbers are exact in their type, and the array is small."""
    return value.size <= MOST_ELEMENTS and fits(value.element, value.bound, value.step)
