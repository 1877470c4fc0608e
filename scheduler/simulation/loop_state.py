"""The state of a loop that is not followed iteration by iteration, widened until it holds for all of its iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distxla.ir.instruction import Instruction
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.scheduler.simulation.counted_loops import differing_bound, passes_on
from distxla.scheduler.simulation.deferred import CallFrame, Deferred, Element, Given, RunState
from distxla.scheduler.simulation.static_values import Parts, PerDeviceConstant, Uniformity, Value, meet
from distxla.scheduler.simulation.traces import Ticket, Tickets
from distxla.scheduler.simulation.value_queries import (
    all_leaves,
    cause_in,
    holds_ticket,
    partition,
    tickets_of,
    uniformity_in,
)

General = Callable[[Shape, object, Uniformity, Instruction], Value]
"""Makes an unknown value of a shape. The second argument tells it from the others of the loop."""


@dataclass
class LoopState:
    """By element of the loop's tuple, or of the one value that is no tuple.

    elements: before the loop.  kept: whether an element passes through every iteration, or holds transfers in flight;
    only the others are widened.  uniformity: of an element in any iteration, as far as is assumed; widening gives it
    more classes.  causes: the instruction because of which an element differs between devices.  source: that of
    elements without a cause of their own.
    """

    world: RunState
    whole: Shape
    devices: frozenset[int]
    elements: list[Deferred]
    kept: list[bool]
    uniformity: list[Uniformity]
    causes: list[Instruction]
    source: Instruction

    @staticmethod
    def of(frame: CallFrame, loop: Instruction, state: Deferred, devices: frozenset[int]) -> LoopState:
        """As it is before the first iteration."""
        whole = loop.shape
        elements = _split(frame.world, whole, state)
        kept = [
            (whole.is_tuple and passes_on(frame.module, loop, k)) or holds_ticket(element)
            for k, element in enumerate(elements)
        ]
        source = differing_bound(frame, loop, elements) or loop
        causes = [cause_in(element) or source for element in elements]
        uniformity: list[Uniformity] = [
            {} if keep else uniformity_in(element, devices) for element, keep in zip(elements, kept, strict=True)
        ]
        return LoopState(frame.world, whole, devices, elements, kept, uniformity, causes, source)

    @property
    def shapes(self) -> Sequence[Shape]:
        return self.whole.elements if self.whole.elements is not None else (self.whole,)

    def split(self, state: Deferred) -> list[Deferred]:
        """The elements of a state."""
        return _split(self.world, self.whole, state)

    def joined(self, elements: Sequence[Deferred]) -> Deferred:
        """The state of these elements."""
        return Given(Parts(tuple(elements))) if self.whole.is_tuple else elements[0]

    def in_any_iteration(self, general: General) -> Deferred:
        """The state at the begin of any iteration, as far as it is assumed to be known."""
        return self.joined(
            [
                element if keep else Given(general(shape, k, self.uniformity[k], self.causes[k]))
                for k, (element, keep, shape) in enumerate(zip(self.elements, self.kept, self.shapes, strict=True))
            ]
        )

    def widen(self, results: Sequence[Deferred]) -> bool:
        """Assume no more than an iteration leaves; whether that is less than before. results: of the iteration."""
        is_wider = False
        for k, keep in enumerate(self.kept):
            if keep or self.uniformity[k] is None:
                continue
            found = meet([self.uniformity[k], uniformity_in(results[k], self.devices)], self.devices)
            if partition(found, self.devices) != partition(self.uniformity[k], self.devices):
                self.uniformity[k] = found
                self.causes[k] = cause_in(results[k]) or self.causes[k]
                is_wider = True
        return is_wider

    def carried(self, results: Sequence[Deferred]) -> Iterator[tuple[Tickets, Tickets]]:
        """The transfers in flight that an iteration takes over, and those that it hands to the next one."""
        for element, result in zip(self.elements, results, strict=True):
            if holds_ticket(element):
                for old, new in zip(all_leaves(element), all_leaves(result)):
                    if isinstance(old, Ticket | PerDeviceConstant):
                        yield tickets_of(old), tickets_of(new)

    def after(self, results: Sequence[Deferred], decided: Uniformity, cause: Instruction, general: General) -> Deferred:
        """The state behind the loop. decided: the uniformity of its trip count, which comes from `cause`."""
        final: list[Deferred] = []
        for k, (keep, shape) in enumerate(zip(self.kept, self.shapes, strict=True)):
            if keep:
                final.append(results[k])
            else:
                uniformity = meet([self.uniformity[k], decided], self.devices)
                final.append(Given(general(shape, ("after", k), uniformity, cause)))
        return self.joined(final)


def _split(world: RunState, whole: Shape, state: Deferred) -> list[Deferred]:
    if whole.elements is None:
        return [state]
    return [Element(state, k, world.terms) for k in range(len(whole.elements))]


__all__ = ["LoopState"]
