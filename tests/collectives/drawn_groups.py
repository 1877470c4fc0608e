"""Groups of transfers and collectives made by chance: in asynchronous computations, and the same one by one."""

from __future__ import annotations

import random

DEVICES = 3
SHAPE = "s32[6]"
CONTEXT = f"({SHAPE}, u32[], token[])"
RINGS = ("{{0,1},{1,2},{2,0}}", "{{1,0},{2,1},{0,2}}", "{{0,2}}")
ADD = "add {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = s32[] add(a, b)\n}\n"


class DrawnGroups:
    """grouped: a program with asynchronous computations, some begun while others are in flight.  plain: one that gives
    the same without any."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0
        computations: list[str] = []
        grouped = [f"v0 = {SHAPE} parameter(0)", "t = token[] after-all()"]
        plain = list(grouped)
        values, results = ["v0"], ["v0"]
        open_groups: list[list[str]] = []
        for number in range(self._random.randint(2, 4)):
            operand = self._random.choice(values)
            inside, outside, names = self._group(operand)
            shapes = ", ".join([SHAPE] * len(names))
            head = [f"p = {SHAPE} parameter(0)", "t = token[] parameter(1)"]
            body = "\n  ".join([*head, *inside, f"ROOT o = ({shapes}) tuple({', '.join(names)})"])
            computations.append(f"g{number} {{\n  {body}\n}}\n")
            start = f"b{number} = (({SHAPE}, token[]), ({shapes}), s32[]) async-start({operand}, t), calls=g{number}"
            grouped.append(start)
            done = [f"e{number} = ({shapes}) async-done(b{number})"]
            done += [f"{n} = {SHAPE} get-tuple-element(e{number}), index={k}" for k, n in enumerate(names)]
            open_groups.append(done)
            results += names
            plain += outside
            if self._random.random() < 0.5:  # else the next group begins before this one ends
                self._random.shuffle(open_groups)
                for lines in open_groups:
                    grouped += lines
                    values += [line.split(" ")[0] for line in lines[1:]]
                open_groups = []
            mine = f"m{number} = {SHAPE} all-reduce(v0), to_apply=add"
            grouped.append(mine)
            plain.append(mine)
            results.append(f"m{number}")
        for lines in open_groups:
            grouped += lines
        root = f"ROOT r = ({', '.join([SHAPE] * len(results))}) tuple({', '.join(results)})"
        self.grouped = self._text([*computations], [*grouped, root])
        self.plain = self._text([], [*plain, root])

    def _text(self, computations: list[str], lines: list[str]) -> str:
        header = f"HloModule drawn, replica_count={DEVICES}, is_scheduled=true\n{ADD}"
        return f"{header}{''.join(computations)}ENTRY main {{\n  " + "\n  ".join(lines) + "\n}\n"

    def _group(self, operand: str) -> tuple[list[str], list[str], list[str]]:
        """Lines of a computation of p, the same outside of `operand`, and the names of what they give."""
        inside: list[str] = []
        outside: list[str] = []
        values: list[str] = []
        for _ in range(self._random.randint(2, 5)):
            self._count += 1
            name = f"v{self._count}"
            source = "p" if not values or self._random.random() < 0.7 else self._random.choice(values)
            ring = self._random.choice(RINGS)
            kind = self._random.choice(["sum", "permute", "pair", "transfer", "split", "compute", "broadcast"])
            plain = operand if source == "p" else source
            inside += self._lines(kind, name, source, ring, "p", in_group=True)
            outside += self._lines(kind, name, plain, ring, operand, in_group=False)
            values.append(name)
        return inside, outside, values

    def _lines(self, kind: str, name: str, x: str, ring: str, other: str, *, in_group: bool) -> list[str]:
        if kind == "transfer":
            pairs = f"channel_id=0, frontend_attributes={{_xla_send_recv_source_target_pairs={ring}}}"
            lines = [f"{name}.go = {CONTEXT} send({x}, t), {pairs}", f"{name}.c = {CONTEXT} recv(t), {pairs}"]
            if in_group:
                return [*lines, f"{name} = {SHAPE} get-tuple-element({name}.c), index=0"]
            return [
                *lines,
                f"{name}.rd = ({SHAPE}, token[]) recv-done({name}.c), channel_id=0",
                f"{name}.sd = token[] send-done({name}.go), channel_id=0",
                f"{name} = {SHAPE} get-tuple-element({name}.rd), index=0",
            ]
        if kind == "pair" and in_group:
            return [
                f"{name}.b = ({SHAPE}, {SHAPE}) collective-permute-start({x}), source_target_pairs={ring}",
                f"{name} = {SHAPE} collective-permute-done({name}.b)",
            ]
        expression = {
            "sum": f"all-reduce({x}), to_apply=add",
            "permute": f"collective-permute({x}), source_target_pairs={ring}",
            "pair": f"collective-permute({x}), source_target_pairs={ring}",
            "split": f"all-to-all({x}), dimensions={{0}}, replica_groups={{{{0,1,2}}}}",
            "compute": f"subtract({x}, {other})",
            "broadcast": f"collective-broadcast({x}), replica_groups={{{{1,0,2}}}}",
        }[kind]
        return [f"{name} = {SHAPE} {expression}"]
