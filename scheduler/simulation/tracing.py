"""Follow a program on all its devices at once, as far as that can be done before the run.

Devices are followed together until a known decision separates them, so their common instructions are followed once. A
decision that only the run tells becomes a `Choice`, unless it makes no difference to others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from distxla.collectives.channels import is_end
from distxla.collectives.signature import meaning, structure
from distxla.ir.effects import Effects
from distxla.ir.effects_order import effectful_computations, has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.control_flow import Conditional, While
from distxla.ops.support.collective_start_done import single_collective
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.scheduler.simulation.call_summaries import CallSummaries
from distxla.scheduler.simulation.communication import Communication, CommunicationSite
from distxla.scheduler.simulation.counted_loops import trip_count
from distxla.scheduler.simulation.deferred import (
    CallFrame,
    Cases,
    Deferred,
    Element,
    Given,
    RunState,
    force,
    term_of,
    uniformity_of,
)
from distxla.scheduler.simulation.loop_state import LoopState
from distxla.scheduler.simulation.static_values import (
    Constant,
    Parts,
    PerDeviceConstant,
    Uniformity,
    Unknown,
    Value,
)
from distxla.scheduler.simulation.traces import (
    Act,
    Choice,
    Decision,
    Loops,
    Split,
    Ticket,
    Trace,
    TraceEvent,
    are_equal,
)
from distxla.scheduler.simulation.value_queries import (
    all_leaves,
    tickets_of,
    uniformity_in,
)
from distxla.time_limit import at

MOST_DEVICE_EVENTS = 4_000_000  # of all devices together, that are followed one by one
MOST_ITERATIONS = 3_000  # of loops, whatever is in them: a second or so


class TooLongError(Exception):
    """A program does more than can be followed. instruction: where that was seen; module: its number."""

    def __init__(self, program: int, instruction: Instruction) -> None:
        super().__init__(program, instruction)
        self.program, self.instruction = program, instruction


@dataclass
class Tracer:
    """Follows one program of a run."""

    communication: Communication
    program: int
    world: RunState

    def __post_init__(self) -> None:
        self.devices, self.module = self.communication.programs[self.program]
        self._effectful = effectful_computations(self.module)
        self._calls = CallSummaries(self.module, self._effectful)
        self._is_dynamic = has_dynamic_dimensions(self.module)
        self._left = MOST_DEVICE_EVENTS
        self._iterations_left = MOST_ITERATIONS
        self._uniformity: dict[int, dict[int, Hashable]] = {}
        self._loops: Loops = ()  # around the current instruction
        # A term for all communication so far. Programs with equal ones have executed the same rounds, so the results of
        # a group's members in the next one are the same also where they run different programs.
        self._alone = len(self.communication.programs) == 1
        self._past = self.world.terms.number("begin")
        self._begun: dict[Ticket, int] = {}  # rounds and transfers in flight: the term at their start

    def trace(self) -> Trace:
        """The events of the program's devices. Raises TooLongError."""
        entry = self.module.entry_computation
        arguments = [
            Given(Unknown(self.world.terms.number("argument", self.program, k), None, parameter))
            for k, parameter in enumerate(entry.parameters)
        ]
        found: Trace = []
        self._run(entry.name, arguments, frozenset(self.devices), found)
        return found

    def _run(self, name: str, arguments: Sequence[Deferred], devices: frozenset[int], into: Trace) -> Deferred:
        """Follow a computation; its root's value."""
        at(name)
        computation = self.module[name]
        frame = CallFrame(self.world, self.program, self.module, computation, arguments, devices)
        if name in self._effectful:
            for instruction in computation:
                op = instruction.op
                if (
                    has_effects(instruction, self._effectful)
                    or op.start_done.updates_async
                    or op.start_done.completes_async
                ):
                    self._act(frame, instruction, into)
        return frame[computation.root]

    def _act(self, frame: CallFrame, instruction: Instruction, into: Trace) -> None:
        """Follow an instruction that communicates, or that calls one which does."""
        op = instruction.op
        if op.role.is_loop:
            around = self._loops
            frame.found[instruction.name] = self._while(frame, instruction, into)
            self._loops = around
        elif op.role.is_conditional:
            frame.found[instruction.name] = self._conditional(frame, instruction, into)
        elif op.start_done.starts_async:
            self._async_start(frame, instruction, into)
        elif op.start_done.updates_async:
            frame.found[instruction.name] = frame.operand(instruction)
        elif op.effects is Effects.CHANNEL:
            if op.is_device_transfer:
                self._channel(frame, instruction, into)
            elif op.transfer.starts:
                frame.set(instruction.name, Parts((Given(self._varies(instruction)),) * 3))
        elif op.start_done.completes:
            self._done(frame, instruction, into)
        elif op.is_collective:
            self._collective(frame, instruction, into)
        elif op.lowering is Lowering.CALL:
            if self._calls.is_too_long(instruction) and self._summarised_call(frame, instruction, into):
                return
            arguments = [frame[o] for o in instruction.operands]
            frame.found[instruction.name] = self._run(op.called_computations[0], arguments, frame.devices, into)

    def _summarised_call(self, frame: CallFrame, instruction: Instruction, into: Trace) -> bool:
        """Summarise a call that is too long to follow: one execution of each collective represents all. False if it
        communicates otherwise, or if its executions depend on values.

        All devices that reach the call execute the same collectives in the same order. So if the collectives complete
        once, one after the other, then any sequence of them completes.
        """
        name = instruction.op.called_computations[0]
        collectives = self._calls.collectives(name)
        if collectives is None:
            return False
        once: Trace = []
        for holder, collective in collectives:
            inner = CallFrame(self.world, self.program, self.module, self.module[holder], (), frame.devices)
            self._event(inner, once, Act.ROUND, self._site(inner, collective))
        if once:
            count = self._calls.times[name]
            # devices with another call may execute the same collectives in another order
            what = structure(self.module, self.module[name])
            deciding = Unknown(self.world.terms.number("all of", what), {}, instruction)
            into.append(Choice(self._decision(instruction, deciding, count), [once], is_loop=True))
        frame.set(instruction.name, self._spread(instruction.shape, None, instruction, self.world.terms.fresh()))
        return True

    def _varies(self, instruction: Instruction) -> Unknown:
        return Unknown(self.world.terms.fresh(), None, instruction)

    def _event(
        self,
        frame: CallFrame,
        into: Trace,
        act: Act,
        site: CommunicationSite,
        ticket: Ticket | dict[int, Ticket] | None = None,
        ends: CommunicationSite | None = None,
    ) -> None:
        self._left -= len(frame.devices)
        if self._left < 0:
            raise TooLongError(self.program, site.instruction)
        if self._alone:
            self._past = self.world.terms.fresh()
        elif site.rendezvous_by_device[0]:
            self._then(act.value, site.signature, id(site.rendezvous_by_device[0]))
        else:
            self._then(act.value, site.acting.op.channel)
        if act in (Act.ROUND, Act.START) and not site.rendezvous_by_device[0]:
            return  # groups of one
        into.append(TraceEvent(act, site, ticket, ends or site, self._loops))

    def _then(self, *what: Hashable) -> None:
        """Note the next communication."""
        self._past = self.world.terms.number("then", self._past, *what)

    # --- collectives

    def _site(self, frame: CallFrame, instruction: Instruction, acting: Instruction | None = None) -> CommunicationSite:
        shapes = tuple(frame.computation[o].shape for o in instruction.operands)
        return self.communication.site(self.program, instruction, acting or instruction, shapes)

    def _collective(self, frame: CallFrame, instruction: Instruction, into: Trace) -> None:
        site = self._site(frame, instruction)
        if not instruction.op.start_done.starts_pair:
            self._event(frame, into, Act.ROUND, site)
            frame.set(instruction.name, self._result(site, instruction.shape, self._past))
            return
        at_once = self._is_dynamic or instruction.op.is_sliced
        self._begin(frame, instruction, site, into, at_once=at_once)

    def _begin(
        self, frame: CallFrame, instruction: Instruction, site: CommunicationSite, into: Trace, *, at_once: bool
    ) -> None:
        ticket = Ticket(site)
        self._event(frame, into, Act.ROUND if at_once else Act.START, site, ticket)
        self._begun[ticket] = self._past
        frame.set(instruction.name, ticket)

    def _async_start(self, frame: CallFrame, instruction: Instruction, into: Trace) -> None:
        called = self.module[instruction.op.called_computations[0]]
        if not self._is_dynamic and single_collective(called) is not None:
            site = self._site(frame, instruction, called.root_instruction)
            self._begin(frame, instruction, site, into, at_once=False)
            return
        operands = tuple(frame[o] for o in instruction.operands)
        outputs = self._run(called.name, operands, frame.devices, into)
        contexts = (instruction.shape.elements or ())[2:]
        rest = (Given(self._varies(instruction)) for _ in contexts)
        frame.set(instruction.name, Parts((Given(Parts(operands)), outputs, *rest)))

    def _done(self, frame: CallFrame, instruction: Instruction, into: Trace) -> None:
        begun = force(frame.operand(instruction))
        if isinstance(begun, Ticket):
            self._event(frame, into, Act.DONE, begun.site, begun, ends=self._site(frame, instruction))
            past = self.world.terms.number("of", self._begun[begun])  # whichever is ended first
            frame.set(instruction.name, self._result(begun.site, instruction.shape, past))
        elif isinstance(begun, Parts):
            frame.found[instruction.name] = Element(frame.operand(instruction), 1, self.world.terms)
        else:
            frame.set(instruction.name, self._varies(instruction))

    def _result(self, site: CommunicationSite, shape: Shape, term: int) -> Value:
        """The result of a collective: the same for all members, if it is of that kind."""
        uniformity: Uniformity = None
        if site.acting.op.round.same_for_all:
            uniformity = self._members(site)
        return self._spread(shape, uniformity, site.instruction, term)

    def _members(self, site: CommunicationSite) -> Uniformity:
        """Uniformity classes in which the members of each group have the same value."""
        rendezvous_by_device = site.rendezvous_by_device[0]
        found = self._uniformity.get(id(rendezvous_by_device))
        if found is None:
            device_count = self.communication.counts.devices
            some = next(iter(rendezvous_by_device.values()), None)
            if some is not None and len(some.members) == device_count:
                found = {}
            else:
                first = {
                    d: rendezvous_by_device[d].members[0] if d in rendezvous_by_device else d for d in self.devices
                }
                found = {d: (id(rendezvous_by_device), member) for d, member in first.items()}
            self._uniformity[id(rendezvous_by_device)] = found
        return found

    def _spread(self, shape: Shape, uniformity: Uniformity, cause: Instruction, term: int) -> Value:
        if shape.elements is not None:
            number = self.world.terms.number
            parts = (self._spread(s, uniformity, cause, number("part", term, k)) for k, s in enumerate(shape.elements))
            return Parts(tuple(map(Given, parts)))
        return Unknown(term, uniformity, cause) if shape.is_array else Constant(None)

    # --- channels

    def _channel(self, frame: CallFrame, instruction: Instruction, into: Trace) -> None:
        op = instruction.op
        if is_end(instruction):
            site = self._site(frame, instruction)
            ticket = Ticket(site)
            self._event(frame, into, Act.SEND if op.transfer.sends else Act.RECV, site, ticket)
            frame.set(instruction.name, Parts((Given(self._varies(instruction)), Given(ticket), Given(Constant(None)))))
            return
        found = force(Element(frame.operand(instruction), 1, self.world.terms))
        act = Act.SEND_DONE if op.transfer.sends else Act.RECV_DONE
        self._event(frame, into, act, self._site(frame, instruction), tickets_of(found))
        if act is Act.RECV_DONE:
            frame.set(instruction.name, self._spread(instruction.shape, None, instruction, self.world.terms.fresh()))
        else:
            frame.set(instruction.name, Constant(None))

    # --- branches

    def _conditional(self, frame: CallFrame, instruction: Instruction, into: Trace) -> Deferred:
        op = instruction.op
        assert isinstance(op, Conditional)
        selector = force(frame.operand(instruction))
        if isinstance(selector, Constant):
            return self._branch(frame, instruction, op.branch_of(selector.array), frame.devices, into)
        if isinstance(selector, PerDeviceConstant):
            taken: dict[int, set[int]] = {}
            same: dict[tuple[str, str], int] = {}  # the first branch with a computation and its argument
            for device, value in selector.by_device.items():
                assert isinstance(value, Constant)
                number = op.branch_of(value.array)
                number = same.setdefault((op.branches[number], instruction.operands[1 + number]), number)
                taken.setdefault(number, set()).add(device)
            parts, cases = [], []
            past = self._past
            for number, group in sorted(taken.items()):
                trace: Trace = []
                self._past = self.world.terms.number("part", past, number)
                devices = frozenset(group)
                cases.append((devices, self._branch(frame, instruction, number, devices, trace)))
                parts.append((devices, trace))
            if any(trace for _, trace in parts):
                into.append(Split(instruction, parts))
            return Cases(self.world, cases, instruction)
        assert isinstance(selector, Unknown)
        traces: list[Trace] = []
        results = []
        past = self._past
        for number in range(len(op.branches)):
            trace = []
            self._past = self.world.terms.number("branch", past, selector.term, number)
            results.append((frame.devices, self._branch(frame, instruction, number, frame.devices, trace)))
            traces.append(trace)
        self._past = self.world.terms.number("choice", past, selector.term)
        if all(are_equal(traces[0], trace) for trace in traces[1:]):
            into.extend(traces[0])
        else:
            into.append(Choice(self._decision(instruction, selector), traces))
        return Cases(self.world, results, instruction, selector)

    def _branch(
        self, frame: CallFrame, instruction: Instruction, number: int, devices: frozenset[int], into: Trace
    ) -> Deferred:
        op = instruction.op
        assert isinstance(op, Conditional)
        return self._run(op.branches[number], [frame[instruction.operands[1 + number]]], devices, into)

    def _decision(self, instruction: Instruction, value: Unknown, count: int | None = None) -> Decision:
        return Decision(self.program, value.term, value.uniformity, instruction, value.cause, count)

    # --- loops

    def _while(self, frame: CallFrame, instruction: Instruction, into: Trace) -> Deferred:
        """Iteration by iteration if that can be followed, else by a summary."""
        op = instruction.op
        assert isinstance(op, While)
        state = frame.operand(instruction)
        count = trip_count(frame, instruction, state)
        begin, left, around = len(into), self._left, self._loops
        if count is None or count <= self._iterations_left:
            try:
                return self._each_iteration(frame, instruction, state, into)
            except TooLongError:
                del into[begin:]
                self._left, self._loops = left, around
        self._run(op.condition, [state], frame.devices, into)
        return self._loop_summary(frame, instruction, state, frame.devices, into, count)

    def _each_iteration(self, frame: CallFrame, instruction: Instruction, state: Deferred, into: Trace) -> Deferred:
        op, devices = instruction.op, frame.devices
        assert isinstance(op, While)
        over: list[tuple[frozenset[int], Deferred]] = []  # devices whose loop is over
        around = self._loops
        for iteration in range(1, MOST_ITERATIONS + 2):
            self._iterations_left -= 1
            if self._iterations_left < 0:
                raise TooLongError(self.program, instruction)
            goes_on = force(self._run(op.condition, [state], devices, into))
            if isinstance(goes_on, PerDeviceConstant):
                on = {d for d, value in goes_on.by_device.items() if isinstance(value, Constant) and bool(value.array)}
                if on != set(devices):
                    over.append((devices - on, state))
                    devices = frozenset(on)
                    self._then("some leave")
                    part: Trace = []
                    into.append(Split(instruction, [(devices, part)]))
                    into = part
            elif isinstance(goes_on, Constant):
                if not bool(goes_on.array):
                    over.append((devices, state))
                    break
            else:
                self._loops = around
                over.append((devices, self._loop_summary(frame, instruction, state, devices, into, None)))
                break
            self._loops = (*around, (instruction, iteration))
            state = self._run(op.body, [state], devices, into)
        return over[0][1] if len(over) == 1 else Cases(self.world, over, instruction)

    def _loop_summary(
        self,
        frame: CallFrame,
        instruction: Instruction,
        state: Deferred,
        devices: frozenset[int],
        into: Trace,
        count: int | None,
    ) -> Deferred:
        """The summary of a loop that is not followed iteration by iteration: one iteration from a state that represents
        the state of any iteration. The state is widened until it holds for every iteration (a fixed point)."""
        op = instruction.op
        assert isinstance(op, While)
        self._loops = (*self._loops, (instruction, None))
        loop, terms = LoopState.of(frame, instruction, state, devices), self.world.terms
        name = self._loop_name(instruction, loop)
        general = partial(self._general, name)
        while True:
            self._past = terms.number("iteration", name)
            given, before = loop.in_any_iteration(general), self._left
            goes_on = force(self._run(op.condition, [given], devices, []))
            iteration: Trace = []
            after = self._run(op.body, [given], devices, iteration)
            self._run(op.condition, [after], devices, iteration)
            results = loop.split(after)
            if not loop.widen(results):
                break
            self._left = before
        self._past = terms.number("after", name)
        deciding = self._deciding(instruction, loop, goes_on, count)
        carried = [*loop.carried(results)]
        if iteration:
            into.append(
                Choice(self._decision(instruction, deciding, count), [iteration], is_loop=True, carried=carried)
            )
        return loop.after(results, deciding.uniformity, deciding.cause, general)

    def _loop_name(self, instruction: Instruction, loop: LoopState) -> int:
        """A number that is equal for equal loops that begin with equal states; of its own for a lone program."""
        terms = self.world.terms
        name = terms.fresh()
        if self._alone:
            return name
        leaves = [leaf for element in loop.elements for leaf in all_leaves(element)]
        begins = [
            None if uniformity_of(leaf) is None else term_of(leaf, terms) for leaf in leaves
        ]  # None: each its own
        return terms.number("loop", self._past, meaning(self.module, instruction, (loop.whole,)), *begins)

    def _deciding(self, instruction: Instruction, loop: LoopState, goes_on: Value, count: int | None) -> Unknown:
        """The value that decides whether the loop runs another iteration. goes_on: of its condition."""
        if count is not None:
            return Unknown(self.world.terms.number("count", count), {}, instruction)
        if isinstance(goes_on, Unknown):
            return goes_on
        return Unknown(self.world.terms.fresh(), uniformity_in(Given(goes_on), loop.devices), loop.source)

    def _general(self, name: int, shape: Shape, part: object, uniformity: Uniformity, cause: Instruction) -> Value:
        if shape.elements is not None:
            elements = (self._general(name, s, (part, k), uniformity, cause) for k, s in enumerate(shape.elements))
            return Parts(tuple(map(Given, elements)))
        return (
            Unknown(self.world.terms.number("state", name, part), uniformity, cause)
            if shape.is_array
            else Constant(None)
        )


__all__ = ["TooLongError", "Tracer"]
