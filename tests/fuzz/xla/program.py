"""A random program with its arguments, and the facts that are known of its results."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.ir.element_type import element_type
from tests.fuzz.xla import applied, collectives, control, elementwise, movement
from tests.fuzz.xla.exact_values import ELEMENTS, INTEGERS, Value, is_inexact_type
from tests.fuzz.xla.writer import Module, Writer

Array = np.ndarray[Any, Any]
DEVICES = (1, 1, 2, 4)
MOST_RESULTS = 12


class RandomProgram:
    """text: HLO of a module for replicas or partitions.  results: its leaves.  Equal seeds make equal programs."""

    def __init__(self, seed: int) -> None:
        module = Module(seed, DEVICES)
        self.seed, self._random = seed, module.random
        self.devices = module.devices
        self.partitions = self.devices if module.partitioned else 1
        self.replicas = self.devices // self.partitions
        w = Writer(module, collectives=self.devices > 1, depth=2)
        self.parameters = [self._parameter(w) for _ in range(self._random.randint(1, 4))]
        _extend(w, self._random.randint(4, 16))
        # values without users, so that little of the program is dead
        outs = [value for value in w.pool if value.name not in w.used][-MOST_RESULTS:] or w.pool[-1:]
        self.results = outs
        lines = [
            *w.lines,
            f"ROOT results = ({', '.join(o.shape for o in outs)}) tuple({', '.join(o.name for o in outs)})",
        ]
        entry = "ENTRY main {\n  " + "\n  ".join(lines) + "\n}"
        head = f"HloModule random_{seed}, replica_count={self.replicas}, num_partitions={self.partitions}"
        self.text = "\n\n".join([head, *module.computations.values(), entry]) + "\n"

    def _parameter(self, w: Writer) -> Value:
        element, dims = self._random.choice(ELEMENTS), w.dims()
        step = self._random.choice([1.0, 0.5]) if is_inexact_type(element) else 1.0
        number = len(w.pool)
        value = Value(f"p{number}", element, dims, _most(element) * step, step)
        w.lines.append(f"p{number} = {value.shape} parameter({number})")
        w.pool.append(value)
        return value

    def arguments(self) -> list[list[Array]]:
        """By device and parameter; multiples of the step within the bound."""
        return [
            [self._argument(value, device, k) for k, value in enumerate(self.parameters)]
            for device in range(self.devices)
        ]

    def _argument(self, value: Value, device: int, number: int) -> Array:
        generator = np.random.default_rng([self.seed, device, number])
        element = element_type(value.element)
        most = _most(value.element)
        low = -most if element.is_signed or is_inexact_type(value.element) else 0
        drawn: Any = generator.integers(low, most + 1, value.dims) * value.step
        if element.is_complex:
            drawn = drawn + 1j * generator.integers(low, most + 1, value.dims) * value.step
        if element.kind == "pred":
            drawn = generator.integers(0, 2, value.dims)
        return np.asarray(drawn).astype(element.dtype).reshape(value.dims)


def _most(element: str) -> int:
    return 9 if element in INTEGERS else 3


def _extend(w: Writer, count: int) -> None:
    """Append so many instructions, and those that make their operands."""
    for _ in range(count):
        kind = w.random.random()
        if w.depth and kind < 0.12:
            w.random.choice(control.MAKERS)(w, _extend)
        elif w.collectives and kind < 0.3:
            w.random.choice(collectives.MAKERS)(w)
        else:
            makers = w.random.choice([elementwise, elementwise, movement, movement, applied])
            w.random.choice(makers.MAKERS)(w)
