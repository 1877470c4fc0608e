"""Modules made by chance for differential tests: loops, branches, collectives, updates in place, swapped leaves.

All arrays are s32, so that results must be equal bit for bit. Loops end after a counted number of iterations, and what
decides whether a collective is reached is the same on all devices, so that every module ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable

ARRAY, WIDE, SCALAR, UNIFORM = "s32[4]", "s32[8]", "s32[]", "s32[]{}"  # UNIFORM: equal on all devices


class RandomModule:
    """`text` is a module for `devices` replicas whose parameters are `parameters`, all leaves.

    pairs: most collectives are begun, and ended after some other instructions.
    """

    def __init__(self, seed: int, devices: int, *, pairs: bool = False) -> None:
        self._random = random.Random(seed)
        self._pairs = pairs
        self._in_flight: list[Callable[[], None]] = []  # of the computation that is being written
        self._devices = devices
        self._names = 0
        self._computations: list[str] = [
            "sum {\n  sum.x = s32[] parameter(0)\n  sum.y = s32[] parameter(1)\n"
            "  ROOT sum.r = s32[] add(sum.x, sum.y)\n}",
        ]
        self.parameters = [self._random.choice([ARRAY, WIDE, SCALAR]) for _ in range(self._random.randint(1, 4))]
        entry = self._entry()
        self.text = "\n\n".join([f"HloModule random{seed}, replica_count={devices}", *self._computations, entry]) + "\n"

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}.{self._names}"

    def _entry(self) -> str:
        lines: list[str] = []
        pool: list[tuple[str, str]] = []
        grouped = self._random.random() < 0.3 and len(self.parameters) > 1
        if grouped:  # one tuple parameter for all
            name = self._name("arguments")
            lines.append(f"{name} = {_tuple(self.parameters)} parameter(0)")
            pool += self._leaves(lines, name, self.parameters)
        else:
            for k, kind in enumerate(self.parameters):
                name = self._name("argument")
                lines.append(f"{name} = {kind} parameter({k})")
                pool.append((name, kind))
        self._body(lines, pool, depth=2, collectives=True, length=self._random.randint(3, 10))
        outs = [self._random.choice(pool)[0] for _ in range(self._random.randint(1, 5))]
        kinds = dict(pool)
        first = len(outs) // 2
        if self._random.random() < 0.3 and first:
            inner = self._name("inner")
            inner_type = _tuple([kinds[o] for o in outs[:first]])
            lines.append(f"{inner} = {inner_type} tuple({', '.join(outs[:first])})")
            kinds[inner] = inner_type
            outs = [inner, *outs[first:]]
        lines.append(f"ROOT {self._name('result')} = {_tuple([kinds[o] for o in outs])} tuple({', '.join(outs)})")
        return "ENTRY main {\n  " + "\n  ".join(lines) + "\n}"

    def _leaves(self, lines: list[str], name: str, kinds: list[str]) -> list[tuple[str, str]]:
        found = []
        for k, kind in enumerate(kinds):
            leaf = self._name("leaf")
            lines.append(f"{leaf} = {_plain(kind)} get-tuple-element({name}), index={k}")
            found.append((leaf, kind))
        return found

    def _pick(self, lines: list[str], pool: list[tuple[str, str]], kind: str) -> str:
        """A value of the kind, a new constant where there is none."""
        wanted = [name for name, have in pool if have == kind or (kind == SCALAR and have == UNIFORM)]
        if wanted and self._random.random() < 0.95:
            return self._random.choice(wanted)
        name = self._name("constant")
        count = {ARRAY: 4, WIDE: 8}.get(kind)
        values = [self._random.randint(-5, 9) for _ in range(count or 1)]
        literal = "{" + ", ".join(map(str, values)) + "}" if count else str(values[0])
        lines.append(f"{name} = {_plain(kind)} constant({literal})")
        pool.append((name, kind))
        return name

    def _body(
        self, lines: list[str], pool: list[tuple[str, str]], *, depth: int, collectives: bool, length: int
    ) -> None:
        makers = [self._binary, self._update, self._update, self._reverse, self._slice, self._total]
        if depth:
            makers += [self._loop, self._loop, self._branch]
        outside, self._in_flight = self._in_flight, []
        for _ in range(length):
            while self._in_flight and self._random.random() < 0.4:
                self._in_flight.pop(self._random.randrange(len(self._in_flight)))()
            if collectives and self._random.random() < (0.6 if self._pairs else 0.3):
                self._collective(lines, pool)
                continue
            maker = self._random.choice(makers)
            if maker in (self._loop, self._branch):
                maker(lines, pool, depth - 1, collectives)  # type: ignore[call-arg]
            else:
                maker(lines, pool)  # type: ignore[call-arg]
        for end in self._in_flight:
            end()
        self._in_flight = outside

    def _binary(self, lines: list[str], pool: list[tuple[str, str]]) -> None:
        kind = self._random.choice([ARRAY, ARRAY, WIDE, SCALAR])
        a, b = self._pick(lines, pool, kind), self._pick(lines, pool, kind)
        name = self._name("v")
        opcode = self._random.choice(["add", "subtract", "multiply", "xor", "maximum"])
        lines.append(f"{name} = {kind} {opcode}({a}, {b})")
        pool.append((name, kind))

    def _update(self, lines: list[str], pool: list[tuple[str, str]]) -> None:
        """dynamic-update-slice, which may work in place."""
        target, at = self._pick(lines, pool, WIDE), self._pick(lines, pool, SCALAR)
        update = self._pick(lines, pool, ARRAY)
        name = self._name("updated")
        lines.append(f"{name} = {WIDE} dynamic-update-slice({target}, {update}, {at})")
        pool.append((name, WIDE))

    def _reverse(self, lines: list[str], pool: list[tuple[str, str]]) -> None:
        kind = self._random.choice([ARRAY, WIDE])
        name, operand = self._name("v"), self._pick(lines, pool, kind)
        if self._random.random() < 0.5:
            lines.append(f"{name} = {kind} reverse({operand}), dimensions={{0}}")
        else:
            lines.append(f"{name} = {kind} sort({operand}), dimensions={{0}}, to_apply={self._less()}")
        pool.append((name, kind))

    def _less(self) -> str:
        name = self._name("less")
        self._computations.append(
            f"{name} {{\n  {name}.x = s32[] parameter(0)\n  {name}.y = s32[] parameter(1)\n"
            f"  ROOT {name}.r = pred[] compare({name}.x, {name}.y), direction=LT\n}}"
        )
        return name

    def _slice(self, lines: list[str], pool: list[tuple[str, str]]) -> None:
        name, operand, at = self._name("v"), self._pick(lines, pool, WIDE), self._pick(lines, pool, SCALAR)
        lines.append(f"{name} = {ARRAY} dynamic-slice({operand}, {at}), dynamic_slice_sizes={{4}}")
        pool.append((name, ARRAY))

    def _total(self, lines: list[str], pool: list[tuple[str, str]]) -> None:
        zero, name = self._name("zero"), self._name("v")
        operand = self._pick(lines, pool, ARRAY)
        lines.append(f"{zero} = s32[] constant(0)")
        lines.append(f"{name} = {SCALAR} reduce({operand}, {zero}), dimensions={{0}}, to_apply=sum")
        pool.append((name, SCALAR))

    def _collective(self, lines: list[str], pool: list[tuple[str, str]]) -> None:
        n, name = self._devices, self._name("collective")
        choice = self._random.choice(["all-reduce", "all-reduce", "two", "permute", "gather", "scatter", "to-all"])
        kind = self._random.choice([ARRAY, WIDE])
        a, b = self._pick(lines, pool, kind), self._pick(lines, pool, kind)
        order = list(range(n))
        self._random.shuffle(order)
        split = order if self._random.random() < 0.5 or n % 2 else None
        half = f"{{{','.join(map(str, order[: n // 2]))}}},{{{','.join(map(str, order[n // 2 :]))}}}"
        groups = f"replica_groups={{{{{','.join(map(str, order))}}}}}" if split else f"replica_groups={{{half}}}"
        size = n if split else n // 2
        if choice == "all-reduce":
            text, kinds, outs = f"all-reduce({a}), {groups}, to_apply=sum", [kind], [kind]
        elif choice == "two":  # variadic, often the same operand twice
            other = a if self._random.random() < 0.4 else b
            text, kinds = f"all-reduce({a}, {other}), {groups}, to_apply=sum", [kind, kind]
            outs = kinds
        elif choice == "permute":
            pairs = ",".join(f"{{{i},{t}}}" for i, t in enumerate(order) if self._random.random() < 0.8)
            text, kinds, outs = f"collective-permute({a}), source_target_pairs={{{pairs}}}", [kind], [kind]
        elif choice == "gather":
            outs = [f"s32[{int(kind[4:-1]) * size}]"]
            text, kinds = f"all-gather({a}), {groups}, dimensions={{0}}", [kind]
        elif choice == "scatter":
            wide = self._name("wide")
            parts = ", ".join([self._pick(lines, pool, ARRAY)] * size)
            lines.append(f"{wide} = s32[{4 * size}] concatenate({parts}), dimensions={{0}}")
            text = f"reduce-scatter({wide}), {groups}, dimensions={{0}}, to_apply=sum"
            kinds, outs = [f"s32[{4 * size}]"], [ARRAY]
        else:
            operands = [self._pick(lines, pool, kind) for _ in range(size)]
            text, kinds = f"all-to-all({', '.join(operands)}), {groups}", [kind] * size
            outs = kinds
        is_tuple = len(outs) > 1 or choice == "to-all"
        result = _tuple(outs) if is_tuple else outs[0]

        def end() -> None:
            if is_tuple:
                pool.extend(self._leaves(lines, name, outs))
            elif choice == "gather":
                part, count = self._name("part"), int(outs[0][4:-1])
                lines.append(f"{part} = {ARRAY} slice({name}), slice={{[{count - 4}:{count}]}}")
                pool.append((part, ARRAY))
            else:
                pool.append((name, outs[0]))

        if not self._pairs or self._random.random() < 0.2:
            lines.append(f"{name} = {result} {text}")
            end()
            return
        start, (opcode, rest) = self._name("start"), text.split("(", 1)
        sent = _tuple(kinds) if len(kinds) > 1 else kinds[0]
        shape = {
            "all-reduce": result,
            "collective-permute": f"({sent}, {result}, u32[], u32[])",
            "all-gather": f"({sent}, {result})",
        }.get(opcode, f"({_tuple(kinds)}, {result}, u32[])")
        lines.append(f"{start} = {shape} {opcode}-start({rest}")

        def done() -> None:
            lines.append(f"{name} = {result} {opcode}-done({start})")
            end()

        self._in_flight.append(done)

    def _loop(self, lines: list[str], pool: list[tuple[str, str]], depth: int, collectives: bool) -> None:
        """A counted loop whose body updates, swaps, repeats, passes on or replaces its leaves."""
        kinds = [UNIFORM, *(self._random.choice([ARRAY, WIDE, SCALAR]) for _ in range(self._random.randint(1, 5)))]
        zero, initial, name = self._name("zero"), self._name("initial"), self._name("loop")
        lines.append(f"{zero} = s32[] constant(0)")
        operands = [zero, *(self._pick(lines, pool, kind) for kind in kinds[1:])]
        shape = _tuple(kinds)
        lines.append(f"{initial} = {shape} tuple({', '.join(operands)})")
        body, condition = self._name("body"), self._name("condition")
        inside = [f"{body}.state = {shape} parameter(0)"]
        held = self._leaves(inside, f"{body}.state", kinds)
        inner = list(held)
        self._body(inside, inner, depth=depth, collectives=collectives, length=self._random.randint(0, 4))
        inside.append(f"{body}.one = s32[] constant(1)")
        inside.append(f"{body}.next = s32[] add({held[0][0]}, {body}.one)")
        results = [f"{body}.next"]
        for k, kind in enumerate(kinds[1:], 1):
            how = self._random.random()
            same = [leaf for leaf, have in held[1:] if have == kind]
            if how < 0.2:
                results.append(held[k][0])
            elif how < 0.5:
                results.append(self._random.choice(same))
            else:
                results.append(self._pick(inside, inner, kind))
        inside.append(f"ROOT {body}.root = {shape} tuple({', '.join(results)})")
        self._computations.append(f"{body} {{\n  " + "\n  ".join(inside) + "\n}")
        trips = self._random.choice([0, 1, 2, 3, 5])
        self._computations.append(
            f"{condition} {{\n  {condition}.state = {shape} parameter(0)\n"
            f"  {condition}.i = s32[] get-tuple-element({condition}.state), index=0\n"
            f"  {condition}.n = s32[] constant({trips})\n"
            f"  ROOT {condition}.r = pred[] compare({condition}.i, {condition}.n), direction=LT\n}}"
        )
        lines.append(f"{name} = {shape} while({initial}), condition={condition}, body={body}")
        pool += self._leaves(lines, name, kinds)

    def _branch(self, lines: list[str], pool: list[tuple[str, str]], depth: int, collectives: bool) -> None:
        """A conditional; only where all devices take the same branch it may hold collectives."""
        uniform = [name for name, kind in pool if kind == UNIFORM]
        together = bool(uniform) and self._random.random() < 0.7
        index = self._random.choice(uniform) if together else self._pick(lines, pool, SCALAR)
        results = [self._random.choice([ARRAY, WIDE, SCALAR]) for _ in range(self._random.randint(1, 3))]
        by_predicate = self._random.random() < 0.5
        names, operands = [], []
        for _ in range(2 if by_predicate else self._random.randint(1, 3)):
            kinds = [self._random.choice([ARRAY, WIDE, SCALAR]) for _ in range(self._random.randint(1, 3))]
            operand, branch = self._name("operand"), self._name("branch")
            picked = [self._pick(lines, pool, kind) for kind in kinds]
            lines.append(f"{operand} = {_tuple(kinds)} tuple({', '.join(picked)})")
            inside = [f"{branch}.state = {_tuple(kinds)} parameter(0)"]
            inner = self._leaves(inside, f"{branch}.state", kinds)
            length = self._random.randint(0, 3)
            self._body(inside, inner, depth=depth, collectives=collectives and together, length=length)
            outs = [self._pick(inside, inner, kind) for kind in results]
            inside.append(f"ROOT {branch}.root = {_tuple(results)} tuple({', '.join(outs)})")
            self._computations.append(f"{branch} {{\n  " + "\n  ".join(inside) + "\n}")
            names.append(branch)
            operands.append(operand)
        name = self._name("conditional")
        if by_predicate:
            zero, chosen = self._name("zero"), self._name("chosen")
            lines.append(f"{zero} = s32[] constant(1)")
            lines.append(f"{chosen} = pred[] compare({index}, {zero}), direction=GT")
            called = f"true_computation={names[0]}, false_computation={names[1]}"
            index = chosen
        else:
            called = f"branch_computations={{{', '.join(names)}}}"
        lines.append(f"{name} = {_tuple(results)} conditional({index}, {', '.join(operands)}), {called}")
        pool += self._leaves(lines, name, results)


def _plain(kind: str) -> str:
    return SCALAR if kind == UNIFORM else kind


def _tuple(kinds: list[str]) -> str:
    return "(" + ", ".join(_plain(kind) for kind in kinds) + ")"
