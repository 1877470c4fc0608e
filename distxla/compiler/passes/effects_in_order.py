"""Effects that keep the order of the text, whatever is joined between them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations, effects_order
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.rewrites.step import Pass


@dataclass(frozen=True)
class EffectsInOrder(Pass):
    """In programs with channels or feeds, and in scheduled ones, lets instructions with effects wait for those before
    them (ir/effects_order.py says which wait).

    No value flows from a send to the recv-done behind it. So a loop that computes the sent value together with the
    received one would reverse their order, and every device would wait before it sends. Collectives alone are reversed
    on all devices equally, which only matters where the order of the text is a schedule.
    """

    name: ClassVar[str] = "effects-in-order"

    def run(self, module: Module) -> Module:
        transfers = any(i.op.effects in (Effects.CHANNEL, Effects.FEED) for c in module.computations for i in c)
        if not (transfers or module.is_scheduled):
            return module
        effectful = effectful_computations(module)
        return module.with_computations([_in_order(c, effectful, module) for c in module.computations])


def _in_order(computation: Computation, effectful: frozenset[str], module: Module) -> Computation:
    if computation.name not in effectful:
        return computation
    before = {later: earlier for earlier, later in effects_order(computation, effectful, strict=module.is_scheduled)}
    instructions = tuple(
        i.replace(control_predecessors=(*i.control_predecessors, before[i.name]))
        if i.name in before and before[i.name] not in (*i.operands, *i.control_predecessors)
        else i
        for i in computation
    )
    return dataclasses.replace(computation, instructions=instructions) if before else computation
