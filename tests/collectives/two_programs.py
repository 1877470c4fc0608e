"""Two programs made by chance that meet in the same collectives, with other work of their own between."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

Array = np.ndarray
Formula = Callable[[list[Array]], list[Array]]

HEAD = """HloModule {name}
add {{ a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }}
odd {{ a = s32[] parameter(0)
  b = s32[] parameter(1)
  three = s32[] constant(3)
  c = s32[] multiply(b, three)
  ROOT r = s32[] subtract(a, c) }}
"""


class TwoPrograms:
    """texts: one of the devices below `first`, one of the others.  Each takes s32[8] and gives s32[8].

    `expected(given)` is worked out in NumPy, device by device.
    """

    def __init__(self, seed: int, devices: int, first: int) -> None:
        self._random = random.Random(seed)
        self.devices, self.first = devices, first
        self._steps: list[tuple[list[list[int]], Formula]] = []
        self._locals: list[list[list[tuple[str, int]]]] = []
        lines: list[list[str]] = [["x0 = s32[8] parameter(0)"] for _ in range(2)]
        for k in range(self._random.randint(2, 5)):
            work = [self._local() for _ in range(2)]
            self._locals.append(work)
            for program in range(2):
                name = self._write(lines[program], f"x{k}", work[program], f"{k}.{program}")
                lines[program].append(f"in{k} = s32[8] copy({name})")
            instruction = self._collective()
            for program in range(2):
                lines[program].append(f"x{k + 1} = s32[8] {instruction.replace('OPERAND', f'in{k}')}")
        self.texts = []
        for program in range(2):
            last = f"x{len(self._steps)}"
            body = "\n  ".join([*lines[program], f"ROOT r = s32[8] negate({last})"])
            self.texts.append(HEAD.format(name=f"program{program}") + f"ENTRY main {{\n  {body}\n}}\n")

    def _local(self) -> list[tuple[str, int]]:
        return [
            (self._random.choice(["add", "multiply"]), self._random.randint(-5, 5))
            for _ in range(self._random.randint(0, 3))
        ]

    def _write(self, lines: list[str], name: str, work: list[tuple[str, int]], mark: str) -> str:
        for i, (opcode, number) in enumerate(work):
            lines.append(f"k{mark}.{i} = s32[] constant({number})")
            lines.append(f"b{mark}.{i} = s32[8] broadcast(k{mark}.{i}), dimensions={{}}")
            lines.append(f"y{mark}.{i} = s32[8] {opcode}({name}, b{mark}.{i})")
            name = f"y{mark}.{i}"
        return name

    def _groups(self) -> list[list[int]]:
        order = list(range(self.devices))
        self._random.shuffle(order)
        size = self._random.choice([s for s in (1, 2, 4, 8) if self.devices % s == 0])
        return [order[i : i + size] for i in range(0, self.devices, size)]

    def _collective(self) -> str:
        groups = self._groups()
        written = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
        size = len(groups[0])
        kind = self._random.choice(["sum", "odd", "exchange", "broadcast", "permute"])
        if kind in ("sum", "odd"):

            def reduce(given: list[Array]) -> list[Array]:
                total = given[0]
                for other in given[1:]:
                    total = total + other if kind == "sum" else total - 3 * other
                return [total] * len(given)

            self._steps.append((groups, reduce))
            return f"all-reduce(OPERAND), to_apply={'add' if kind == 'sum' else 'odd'}, replica_groups={written}"
        if kind == "exchange":
            self._steps.append(
                (groups, lambda given: [np.concatenate([np.split(g, size)[i] for g in given]) for i in range(size)])
            )
            return f"all-to-all(OPERAND), dimensions={{0}}, replica_groups={written}"
        if kind == "broadcast":
            self._steps.append((groups, lambda given: [given[0]] * size))
            return f"collective-broadcast(OPERAND), replica_groups={written}"
        targets = list(range(self.devices))
        self._random.shuffle(targets)
        pairs = [(s, t) for s, t in enumerate(targets) if self._random.random() < 0.8]

        def permute(given: list[Array]) -> list[Array]:
            found = [np.zeros_like(g) for g in given]
            for s, t in pairs:
                found[t] = given[s]
            return found

        self._steps.append(([list(range(self.devices))], permute))
        listed = ",".join(f"{{{s},{t}}}" for s, t in pairs)
        return f"collective-permute(OPERAND), source_target_pairs={{{listed}}}"

    def expected(self, given: list[Array]) -> list[Array]:
        values = list(given)
        for work, (groups, formula) in zip(self._locals, self._steps, strict=True):
            for device in range(self.devices):
                for opcode, number in work[device >= self.first]:
                    values[device] = values[device] + number if opcode == "add" else values[device] * number
            values = [v.astype(np.int32) for v in values]
            for group in groups:
                for device, value in zip(group, formula([values[d] for d in group]), strict=True):
                    values[device] = value.astype(np.int32)
        return [-v for v in values]
