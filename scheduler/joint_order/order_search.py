"""The search for an order of communication in which no device waits for ever."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.scheduler.joint_order.conflicts import Finding, Reversal, Standing, find
from distxla.scheduler.joint_order.merged_order import merged_orders
from distxla.scheduler.joint_order.reordering import OrderedPair, OrderedPairs, Reordering
from distxla.scheduler.simulation.communication import Communication

MOST_EVENTS = 500_000  # followed in search of an order, on all devices and in all attempts: some ten seconds
ATTEMPT_COST = 200  # of an attempt in addition, in events
SINGLY = 16  # attempts that change places one by one, before whole orders, in which more may move than has to
EVENTS_SINGLY = 20_000  # followed in these attempts

Programs = Sequence[tuple[tuple[int, ...], Module]]


class Search:
    """Depth first: where several reversals would do, the second is tried under the condition that the first is not.

    Where the first attempts fail, whole orders are followed once, however long that takes: simple but large programs
    need them, since the search goes from one cycle to the next one.
    """

    def __init__(self, programs: Programs, counts: Counts) -> None:
        self.communication = Communication(programs, counts)
        self.reorderings: list[Reordering] = []
        self.left = MOST_EVENTS
        self.is_complete = True
        self.best = Standing.STUCK
        self.found = [module for _, module in programs]

    def run(self) -> list[Module]:
        """The best modules that were found: those of the text where others are no better."""
        finding = self._follow(self.found)
        self.best = finding.standing
        if finding.standing is Standing.SAFE:
            return self.found
        if not finding.reversals:
            self.is_complete = finding.reversals is not None
            return self.found
        self.reorderings = [Reordering(self.communication, n) for n in range(len(self.communication.programs))]
        pending = [self._alternatives({}, self.found, finding)]
        attempts = 0
        has_tried_whole = False
        while self.best is not Standing.SAFE:
            if not has_tried_whole and (attempts == SINGLY or self.left < MOST_EVENTS - EVENTS_SINGLY):
                has_tried_whole = True
                for _, modules in merged_orders(self.reorderings):
                    if not self.is_safe:
                        self._consider(modules)
                pending.append(self._with_early_starts())
                continue
            if not pending:
                break
            attempt = next(pending[-1], None)
            if attempt is None:
                pending.pop()
                continue
            if self.left <= 0:
                self.is_complete = False
                break
            attempts += 1
            pairs, modules = attempt
            pending.append(self._alternatives(pairs, modules, self._consider(modules)))
        return self.found

    @property
    def is_safe(self) -> bool:
        return self.best is Standing.SAFE

    def _consider(self, modules: list[Module]) -> Finding:
        finding = self._follow(modules)
        if finding.standing > self.best:
            self.best, self.found = finding.standing, modules
        return finding

    def _follow(self, modules: Sequence[Module]) -> Finding:
        communication = copy.copy(self.communication)
        devices = [devices for devices, _ in communication.programs]
        communication.programs = list(zip(devices, modules, strict=True))
        finding = find(communication)
        self.left -= finding.cost + ATTEMPT_COST
        return finding

    def _with_early_starts(self) -> Iterator[tuple[OrderedPairs, list[Module]]]:
        """All starts before the waits directly before them, as many programs need in many places."""
        pairs: OrderedPairs = {}
        modules = [module for _, module in self.communication.programs]
        for number, reordering in enumerate(self.reorderings):
            pairs[number] = {name: early for name, lines in reordering.lines.items() if (early := lines.early_starts)}
            modules[number] = reordering.reordered(pairs[number]) or modules[number]
        if any(pairs.values()):
            yield pairs, modules

    def _alternatives(
        self, pairs: OrderedPairs, modules: Sequence[Module], finding: Finding
    ) -> Iterator[tuple[OrderedPairs, list[Module]]]:
        if finding.reversals is None:
            self.is_complete = False
            return
        settled = pairs
        for number, name, (earlier, later) in self._exchanges(modules, finding.reversals):
            changed = self._with(settled, modules, number, name, (earlier, later))
            if changed is not None:
                yield changed
            kept = self._with(settled, modules, number, name, (later, earlier))
            if kept is None:  # without it there is no order
                return
            settled = kept[0]

    def _exchanges(
        self, modules: Sequence[Module], reversals: Sequence[Reversal]
    ) -> Iterator[tuple[int, str, OrderedPair]]:
        """Pairs that are reversed now."""
        seen = set()
        for reversal in reversals:
            for name, earlier, later in self.reorderings[reversal.program].exchanges(reversal.waits, reversal.needed):
                key = (reversal.program, name, (earlier, later))
                order = [i.name for i in modules[reversal.program][name]]
                if key not in seen and order.index(earlier) > order.index(later):
                    seen.add(key)
                    yield key

    def _with(
        self, pairs: OrderedPairs, modules: Sequence[Module], number: int, name: str, pair: OrderedPair
    ) -> tuple[OrderedPairs, list[Module]] | None:
        """With one more pair in order; None where that contradicts the others."""
        mine = pairs.get(number, {})
        further: Mapping[str, tuple[OrderedPair, ...]] = {**mine, name: (*mine.get(name, ()), pair)}
        module = self.reorderings[number].reordered(further)
        if module is None:
            return None
        changed = list(modules)
        changed[number] = module
        return {**pairs, number: dict(further)}, changed


__all__ = ["Search"]
