"""Values that are worked out when a decision asks for them, and no others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from distxla.collectives.signature import meaning
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.copy import Copy
from distxla.ops.domain import Domain
from distxla.ops.optimization_barrier import OptimizationBarrier
from distxla.ops.token import AddDependency
from distxla.scheduler.simulation.call_summaries import CallSummaries
from distxla.scheduler.simulation.static_values import (
    Constant,
    Parts,
    PerDeviceConstant,
    Terms,
    Uniformity,
    Unknown,
    Value,
    content,
    evaluated,
    first_cause,
    is_small,
    meet,
    restricted,
)
from distxla.scheduler.simulation.traces import Ticket

if TYPE_CHECKING:
    from collections.abc import Hashable


class Deferred(ABC):
    """A value, once `force` has been asked for it."""

    value: Value | None = None

    @abstractmethod
    def step(self) -> Deferred | None:
        """Set `value`, or return a value that has to be forced before."""


def force(wanted: Deferred) -> Value:
    """The value; without recursion, since loops make long chains."""
    waiting = [wanted]
    while waiting:
        last = waiting[-1]
        needed = None if last.value is not None else last.step()
        if needed is None:
            waiting.pop()
        else:
            waiting.append(needed)
    assert wanted.value is not None
    return wanted.value


class Given(Deferred):
    """A settled value."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def step(self) -> None:
        return None


@dataclass(eq=False)
class RunState:
    """State that all values of a run share."""

    counts: Counts
    terms: Terms = field(default_factory=Terms)

    _calls: dict[int, CallSummaries] = field(default_factory=dict)

    def is_too_long(self, module: Module, call: Instruction) -> bool:
        """Whether a call executes too much to be evaluated."""
        found = self._calls.get(id(module))
        if found is None:
            found = self._calls[id(module)] = CallSummaries(module, frozenset())
        return found.is_too_long(call)

    def ids(self, device: int) -> tuple[int, int]:
        return divmod(device, self.counts.partitions)


@dataclass(eq=False)
class CallFrame:
    """One execution of a computation by devices that do the same. found: by instruction."""

    world: RunState
    program: int
    module: Module
    computation: Computation
    arguments: Sequence[Deferred]
    devices: frozenset[int]
    found: dict[str, Deferred] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Deferred:
        if name not in self.found:
            self.found[name] = _Computed(self, self.computation[name])
        return self.found[name]

    def set(self, name: str, value: Value) -> None:
        self.found[name] = Given(value)

    def operand(self, instruction: Instruction, number: int = 0) -> Deferred:
        return self[instruction.operands[number]]


class Element(Deferred):
    """An element of a tuple."""

    def __init__(self, whole: Deferred, index: int, terms: Terms) -> None:
        self.whole, self.index, self._terms = whole, index, terms

    def step(self) -> Deferred | None:
        value = self.whole.value
        if value is None:
            return self.whole
        if isinstance(value, Parts):
            element: Deferred = value.elements[self.index]
            if element.value is None:
                return element
            self.value = element.value
        elif isinstance(value, Unknown):
            self.value = Unknown(self._terms.number("element", value.term, self.index), value.uniformity, value.cause)
        elif isinstance(value, Constant) and isinstance(value.array, tuple):
            self.value = Constant(value.array[self.index])
        else:
            self.value = value
        return None


class Cases(Deferred):
    """A value that devices have from different places.

    cause: the instruction that chooses.  decided: the unknown value that decides; None where the case of every device
    is known.
    """

    def __init__(
        self,
        world: RunState,
        cases: Sequence[tuple[frozenset[int], Deferred]],
        cause: Instruction,
        decided: Unknown | None = None,
    ) -> None:
        self.world, self.cases, self.cause, self.decided = world, cases, cause, decided

    def step(self) -> Deferred | None:
        for _, case in self.cases:
            if case.value is None:
                return case
        values = [case.value for _, case in self.cases]
        if all(isinstance(value, Parts) for value in values):
            counts = {len(value.elements) for value in values if isinstance(value, Parts)}
            terms = self.world.terms
            self.value = Parts(
                tuple(
                    Cases(
                        self.world,
                        [(devices, Element(case, k, terms)) for devices, case in self.cases],
                        self.cause,
                        self.decided,
                    )
                    for k in range(counts.pop())
                )
            )
        elif self.decided is not None:
            self.value = self._one_of([value for value in values if value is not None])
        else:
            self.value = self._by_device()
        return None

    def _one_of(self, values: list[Value]) -> Value:
        assert self.decided is not None
        first = values[0]
        if isinstance(first, Constant) and all(
            isinstance(other, Constant) and content(other) == content(first) for other in values
        ):
            return first
        if any(not isinstance(value, Constant | Unknown) for value in values):
            return Unknown(self.world.terms.fresh(), None, self.cause)
        devices = frozenset(d for group, _ in self.cases for d in group)
        uniformity = meet([self.decided.uniformity, *(uniformity_of(value) for value in values)], devices)
        terms = self.world.terms
        term = terms.number("one of", self.decided.term, *(term_of(value, terms) for value in values))
        return Unknown(term, uniformity, self.decided.cause)

    def _by_device(self) -> Value:
        found: dict[int, Constant | Ticket] = {}
        uniformity: dict[int, Hashable] = {}
        unknown: Unknown | None = None
        varies = False
        for number, (devices, case) in enumerate(self.cases):
            value = case.value
            if isinstance(value, Unknown):
                unknown = unknown or value
                varies = varies or value.uniformity is None
            for device in devices:
                own = value.by_device.get(device) if isinstance(value, PerDeviceConstant) else value
                if isinstance(own, Constant | Ticket):
                    found[device] = own
                    uniformity[device] = (number, content(own) if isinstance(own, Constant) else id(own))
                elif isinstance(own, Unknown):
                    uniformity[device] = (number, (own.uniformity or {}).get(device))
                else:
                    varies = True
        devices = frozenset(d for group, _ in self.cases for d in group)
        if unknown is None and not varies:
            return restricted(PerDeviceConstant(found), devices)
        terms = self.world.terms
        cause = unknown.cause if unknown else self.cause
        return Unknown(terms.fresh(), None if varies else uniformity, cause)


class _Computed(Deferred):
    """An instruction's result in a frame, for instructions in which the device takes part alone."""

    def __init__(self, frame: CallFrame, instruction: Instruction) -> None:
        self.frame, self.instruction = frame, instruction
        self._inner: Deferred | None = None

    def step(self) -> Deferred | None:
        frame, instruction = self.frame, self.instruction
        op = instruction.op
        if op.role.is_parameter:
            argument = frame.arguments[op.number]  # type: ignore[attr-defined]
            if argument.value is None:
                return argument
            self.value = restricted(argument.value, frame.devices)
        elif op.role.is_tuple:
            self.value = Parts(tuple(frame[name] for name in instruction.operands))
        elif (index := op.element_index) is not None:
            return self._through(lambda: Element(frame.operand(instruction), index, frame.world.terms))
        elif isinstance(op, AddDependency | Copy | Domain | OptimizationBarrier):
            return self._through(lambda: frame.operand(instruction))
        elif op.lowering is Lowering.CALL and frame.world.is_too_long(frame.module, instruction):
            return self._of_a_whole()
        elif op.lowering is Lowering.CALL and not instruction.shape.is_dynamic:
            called = frame.module[op.called_computations[0]]
            return self._through(
                lambda: CallFrame(
                    frame.world,
                    frame.program,
                    frame.module,
                    called,
                    [frame[name] for name in instruction.operands],
                    frame.devices,
                )[called.root]
            )
        else:
            return self._of_operands()
        return None

    def _through(self, make: object) -> Deferred | None:
        if self._inner is None:
            assert callable(make)
            inner = make()
            assert isinstance(inner, Deferred)
            self._inner = inner
        if self._inner.value is None:
            return self._inner
        self.value = restricted(self._inner.value, self.frame.devices)
        return None

    def _of_a_whole(self) -> Deferred | None:
        """The result of a call that is too long to evaluate: a function of the operands, the same on all devices."""
        frame, instruction, terms = self.frame, self.instruction, self.frame.world.terms
        operands = [frame[name] for name in instruction.operands]
        for operand in operands:
            needed = next((d for d in pending(operand)), None)
            if needed is not None:
                return needed
        leaves = [leaf for operand in operands for leaf in leaf_values(operand)]
        is_uniform = is_free_of_chance(frame.module, instruction) and not asks_who(frame.module, instruction)
        uniformity = meet([uniformity_of(leaf) for leaf in leaves], frame.devices) if is_uniform else None
        term = terms.number("called", id(frame.module), instruction.op, *(term_of(leaf, terms) for leaf in leaves))
        unknown = Unknown(term if is_uniform else terms.fresh(), uniformity, instruction)
        self.value = spread(instruction.shape, unknown, terms)
        return None

    def _of_operands(self) -> Deferred | None:
        frame, instruction = self.frame, self.instruction
        if is_free_of_chance(frame.module, instruction):
            operands = [frame[name] for name in instruction.operands]
            for operand in operands:
                needed = next((d for d in pending(operand)), None)
                if needed is not None:
                    return needed
            self.value = self._combined(operands)
        else:
            self.value = Unknown(frame.world.terms.fresh(), None, instruction)
        return None

    def _combined(self, operands: Sequence[Deferred]) -> Value:
        frame, instruction, terms = self.frame, self.instruction, self.frame.world.terms
        leaves = [leaf for operand in operands for leaf in leaf_values(operand)]
        shapes = tuple(frame.computation[name].shape for name in instruction.operands)
        unknown = [leaf for leaf in leaves if isinstance(leaf, Unknown)]
        lost = any(isinstance(leaf, Ticket) for leaf in leaves)
        if not unknown and not lost and is_small((instruction.shape, *shapes)):
            per_device = instruction.op.role.is_device_id
            if not per_device and instruction.op.called_computations:
                per_device = asks_who(frame.module, instruction)
            try:
                if not per_device and all(isinstance(leaf, Constant) for leaf in leaves):
                    return self._evaluated(shapes, [assembled(o, None) for o in operands], min(frame.devices))
                cache: dict[Hashable, Constant] = {}
                found: dict[int, Constant | Ticket] = {}
                for device in sorted(frame.devices):
                    key: Hashable = tuple(label(leaf, device) for leaf in leaves)
                    if per_device:
                        key = (key, frame.world.ids(device))
                    if key not in cache:
                        cache[key] = self._evaluated(shapes, [assembled(o, device) for o in operands], device)
                    found[device] = cache[key]
                return restricted(PerDeviceConstant(found), frame.devices)
            except LookupError:
                pass
        cause = first_cause(unknown)
        uniformity = None if lost else meet([uniformity_of(leaf) for leaf in leaves], frame.devices)
        if asks_who(frame.module, instruction):
            uniformity = None
        if not leaves:  # a large constant, which is never compared
            return Unknown(terms.fresh(), uniformity, instruction)
        structure = (meaning(frame.module, instruction, shapes), *(term_of(leaf, terms) for leaf in leaves))
        return Unknown(terms.number(*structure), uniformity, cause.cause if cause else instruction)

    def _evaluated(self, shapes: tuple[Shape, ...], operands: Sequence[object], device: int) -> Constant:
        frame = self.frame
        found = evaluated(frame.module, self.instruction, shapes, operands, frame.world.ids(device))
        return Constant(found)


def spread(shape: Shape, value: Unknown, terms: Terms) -> Value:
    """A value of `shape` whose leaves are all as unknown as `value`."""
    if shape.elements is not None:
        parts = (
            spread(s, Unknown(terms.number("part", value.term, k), value.uniformity, value.cause), terms)
            for k, s in enumerate(shape.elements)
        )
        return Parts(tuple(map(Given, parts)))
    return value if shape.is_array else Constant(None)


def pending(value: Deferred) -> Iterator[Deferred]:
    """The parts of a value, and of its elements, that have to be forced."""
    if value.value is None:
        yield value
    elif isinstance(value.value, Parts):
        for element in value.value.elements:
            yield from pending(element)


def leaf_values(value: Deferred) -> Iterator[Value]:
    """The leaves of a forced value."""
    found = value.value
    if isinstance(found, Parts):
        for element in found.elements:
            yield from leaf_values(element)
    elif found is not None:
        yield found


def assembled(value: Deferred, device: int | None) -> object:
    """The array, or nested tuples of arrays, of a known value."""
    found = value.value
    if isinstance(found, Parts):
        return tuple(assembled(element, device) for element in found.elements)
    if isinstance(found, PerDeviceConstant):
        assert device is not None
        found = found.by_device[device]
    if not isinstance(found, Constant):
        raise LookupError("a context")
    return found.array


def label(value: Value, device: int) -> Hashable:
    found = value.by_device[device] if isinstance(value, PerDeviceConstant) else value
    return id(found)


def uniformity_of(value: Value) -> Uniformity:
    """On which devices a leaf is the same."""
    if isinstance(value, Unknown):
        return value.uniformity
    if isinstance(value, PerDeviceConstant):
        return {d: content(v) if isinstance(v, Constant) else id(v) for d, v in value.by_device.items()}
    return {}


def term_of(value: Value, terms: Terms) -> int:
    if isinstance(value, Unknown):
        return value.term
    if isinstance(value, Constant) and not isinstance(value.array, tuple):
        return terms.number("known", content(value))
    if isinstance(value, PerDeviceConstant):
        return terms.number("each")  # the labels identify it
    return terms.fresh()


def is_free_of_chance(module: Module, instruction: Instruction) -> bool:
    """Whether the result depends on nothing but the operands and the device."""
    op = instruction.op
    if op.effects is not Effects.PURE or op.advances_state:
        return False
    called = module.reached(*op.called_computations) if op.called_computations else ()
    return all(i.op.effects is Effects.PURE and not i.op.advances_state for c in called for i in c)


def asks_who(module: Module, instruction: Instruction) -> bool:
    """Whether the result depends on which device asks, besides the operands."""
    op = instruction.op
    if op.role.is_device_id:
        return True
    called = module.reached(*op.called_computations) if op.called_computations else ()
    return any(i.op.role.is_device_id for c in called for i in c)


__all__ = [
    "CallFrame",
    "Cases",
    "Deferred",
    "Element",
    "Given",
    "RunState",
    "force",
    "leaf_values",
    "pending",
    "term_of",
    "uniformity_of",
]
