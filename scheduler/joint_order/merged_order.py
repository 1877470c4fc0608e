"""One order for the communication of all programs of a run, found at once: where their own orders don't contradict.

The k-th round of its kind is one step, in whatever programs and branches. Edges join steps that have to stay in order
in any of them, and each end of a transfer to the steps that wait for it at the other end. Where there is no cycle,
every program and branch takes its instructions from one order of all steps. Nothing here has to be trusted: such an
order is followed like any other (order_search.py), and there may be another one where none is found here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count, pairwise

from distxla.ir.module import Module
from distxla.scheduler.joint_order.reordering import Lines, OrderedPairs, Reordering

StepKey = tuple[int, str, str]  # program, computation, name of the instruction


def merged_orders(reorderings: Sequence[Reordering]) -> Iterator[tuple[OrderedPairs, list[Module]]]:
    """Up to two: as the first program or branch has it, the others' steps among its own where they are needed; and
    with all interleaved, by the progress of each."""
    graph = _Graph(reorderings)
    for by in (graph.one_by_one, graph.side_by_side):
        order = graph.sorted(by)
        if order is None:
            return
        pairs: OrderedPairs = {number: {} for number in range(len(reorderings))}
        for number, reordering in enumerate(reorderings):
            for name, lines in reordering.lines.items():
                ranked = sorted((order[graph.step_of[number, name, i.name]], i.name) for i in lines.effects)
                pairs[number][name] = tuple(pairwise(i for _, i in ranked))
        modules = [r.reordered(pairs[number]) for number, r in enumerate(reorderings)]
        if all(modules):
            yield pairs, [module for module in modules if module is not None]


class _Graph:
    """step_of: the step of each instruction, named by the first of those that are one."""

    def __init__(self, reorderings: Sequence[Reordering]) -> None:
        self._all = [(n, name, lines) for n, r in enumerate(reorderings) for name, lines in r.read.items()]
        self._same: dict[StepKey, StepKey] = {}
        shared: dict[Hashable, StepKey] = {}
        begun: dict[Hashable, list[StepKey]] = defaultdict(list)  # end of a transfer -> the instructions that begin it
        awaited: list[tuple[StepKey, Hashable]] = []
        for number, name, lines in self._all:
            steps = _steps(lines, reorderings[number].level(name))
            for instruction in lines.effects:
                place = (number, name, instruction.name)
                for step in steps[instruction.name]:
                    self._join(place, shared.setdefault(step, place))
                    match step:
                        case (_, bool(), _, _):
                            begun[step].append(place)
                        case ("over", (level, bool() as sends, edge, k)):
                            awaited.append((place, (level, not sends, edge, k)))
        self.step_of = {
            (n, name, i.name): self._first((n, name, i.name)) for n, name, lines in self._all for i in lines.computation
        }
        self._before: dict[StepKey, dict[StepKey, None]] = defaultdict(dict)  # step -> those that come earlier
        for number, name, lines in self._all:
            for later, names in lines.before.items():
                earlier = self._before[self.step_of[number, name, later]]
                earlier.update((self.step_of[number, name, n], None) for n in names)
        for place, step in awaited:
            self._before[self.step_of[place]].update((self.step_of[p], None) for p in begun[step])

    def _first(self, place: StepKey) -> StepKey:
        while (other := self._same.get(place, place)) != place:
            self._same[place] = self._same.get(other, other)
            place = other
        return place

    def _join(self, one: StepKey, other: StepKey) -> None:
        self._same[self._first(one)] = self._first(other)

    def one_by_one(self) -> list[StepKey]:
        return list(self.step_of)

    def side_by_side(self) -> list[StepKey]:
        """By the part of a computation that is over before."""
        keyed = [
            (k / len(lines.position), n, place)
            for n, (number, name, lines) in enumerate(self._all)
            for k, place in enumerate((number, name, i.name) for i in lines.computation)
        ]
        return [place for *_, place in sorted(keyed)]

    def sorted(self, visits: Callable[[], list[StepKey]]) -> dict[StepKey, int] | None:
        """The number of each step, with predecessors just before the step that needs them; None if there is a cycle."""
        number = count()
        done: dict[StepKey, int] = {}
        begun: set[StepKey] = set()
        for place in visits():
            pending = [self.step_of[place]]
            while pending:
                step = pending[-1]
                missing = [s for s in self._before.get(step, ()) if s not in done]
                if step in done or not missing:
                    done.setdefault(step, next(number))
                    pending.pop()
                elif step in begun:
                    return None
                else:
                    begun.add(step)
                    pending += reversed(missing)
        return done


def _steps(lines: Lines, level: int) -> dict[str, list[Hashable]]:
    """The steps of each instruction, by its name; instructions of different computations may share a step.

    level: as many calls deep are the others. A loop is one step with another one around the same.
    """
    found: dict[str, list[Hashable]] = {}
    times: dict[Hashable, Iterator[int]] = defaultdict(count)
    for instruction in lines.effects:
        op = instruction.op
        if op.start_done.completes:
            found[instruction.name] = [("over", step) for step in found.get(instruction.operands[0], ())]
            continue
        steps: list[Hashable] = []
        for key in lines.keys[instruction.name]:
            if isinstance(key, tuple):  # all but the keys of this device and its host alone
                first, second = key
                if op.called_computations and not op.start_done.starts_pair and isinstance(first, bool):
                    first = None  # loops around the two ends of a transfer are one step
                steps.append((level, first, second, next(times[first, second])))
        found[instruction.name] = steps
    return found


__all__ = ["merged_orders"]
