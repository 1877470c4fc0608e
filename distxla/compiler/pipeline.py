"""The steps from a module to the plan of its memory, and their order: one list, which is also text.

    inline-calls,simplify,fuse{max-members=8},schedule,plan

A step is named as its class says, a parameter as the step's field; those that are left out have their defaults. A
parameter is a whole number or, as in `reduction-order{order=ring}`, one of the words that its field allows.
`distxla compile --list-passes` prints the names and the standard text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from distxla.compiler.passes.bind_custom_calls import BindCustomCalls
from distxla.compiler.passes.combine_collectives import CombineCollectives
from distxla.compiler.passes.common_subexpressions import CommonSubexpressions
from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.effects_in_order import EffectsInOrder
from distxla.compiler.passes.expand import Expand
from distxla.compiler.passes.forget_buffers import ForgetBuffers
from distxla.compiler.passes.fuse import Fuse
from distxla.compiler.passes.fuse_rows import FuseRows
from distxla.compiler.passes.inline_calls import InlineCalls
from distxla.compiler.passes.one_thread import OneThread
from distxla.compiler.passes.pad_dynamic_dimensions import PadDynamicDimensions
from distxla.compiler.passes.resolve_layouts import ResolveLayouts
from distxla.compiler.passes.schedule import Overlap, Schedule
from distxla.compiler.passes.simplify import Simplify
from distxla.compiler.passes.sorts_as_written import SortsAsWritten
from distxla.compiler.passes.zero_copy_transfers import ZeroCopyTransfers
from distxla.compiler.plan.plan_program import PlanMemory
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import ArgumentError, UnsupportedOpError
from distxla.ir.counts import UNKNOWN, Counts
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, field
from distxla.location import Location
from distxla.program.host_call_site import FunctionKey
from distxla.program.options import CompileOptions, InPlace, verifies_passes
from distxla.rewrites.async_computations import InlineAsync
from distxla.rewrites.driver_steps import driver_steps
from distxla.rewrites.executed_form import CallHostComputations
from distxla.rewrites.explicit_precision import ExplicitPrecision
from distxla.rewrites.rounds_in_order import RoundsInOrder
from distxla.rewrites.spread_collectives import JoinSpreadCollectives
from distxla.rewrites.step import Compilation, Step
from distxla.similar_words import did_you_mean, nearest
from distxla.time_limit import at

STEPS: tuple[Step, ...] = (
    *driver_steps(),
    OneThread(),
    CallHostComputations(),
    SortsAsWritten(),
    ExplicitPrecision(),
    JoinSpreadCollectives(),
    InlineAsync(),
    RoundsInOrder(),
    ForgetBuffers(),
    BindCustomCalls(),
    ResolveLayouts(),
    Expand(),
    InlineCalls(),
    PadDynamicDimensions(),
    Simplify(),
    CommonSubexpressions(),
    DeadCode(),
    CombineCollectives(),
    Simplify(),
    DeadCode(),
    EffectsInOrder(),
    Overlap(),
    Fuse(),
    FuseRows(),
    DeadCode(),
    ZeroCopyTransfers(),
    Schedule(),
    PlanMemory(),
)
"""From a module to one whose every instruction is a kernel, a control structure or a communication, in the
order of execution, and to its plan. The driver runs the first steps, and verifies the module that they give."""

_TOKEN = re.compile(r"\s*([^\s,{}=]+|[,{}=]|$)")
_LIVE = DeadCode()  # a rewritten context may still be an operand of a dead tuple
_by_name = {step.name: type(step) for step in STEPS}

Observer = Callable[[Step, Compilation], None]


@dataclass(frozen=True)
class Pipeline:
    """Runs steps in order.

    verify: check every module that a step changed; by default as the environment says (program/options.py).
    progress: called with the name of each step before it begins.
    """

    steps: tuple[Step, ...] = STEPS
    verify: bool = field(default_factory=verifies_passes)
    progress: Callable[[str], None] = at

    @classmethod
    def of(cls, options: CompileOptions, progress: Callable[[str], None] = at) -> Pipeline:
        """The standard steps, with the parameters that the options give."""
        given = {RoundsInOrder.name: RoundsInOrder(apart=int(options.apart))}
        return cls(tuple(given.get(step.name, step) for step in STEPS), options.verified, progress)

    def run(
        self,
        module: Module,
        counts: Counts = UNKNOWN,
        after: Observer | None = None,
        in_place: InPlace = (),
        host_calls: Collection[FunctionKey] | None = None,
    ) -> Compilation:
        """Run all steps. after: called with each step that has run, and its result.  in_place, host_calls: as in
        Compilation.

        Errors get a note that names the step, where they don't point at the instruction that can't be compiled.
        """
        compilation = Compilation.of(module, counts, in_place, host_calls)
        for step in self.steps:
            self.progress(f"pass {step.name}")
            try:
                changed = step.apply(compilation)
                if self.verify and changed.module is not compilation.module:
                    verify_module(_LIVE.run(changed.module))
            except Exception as error:
                if not (isinstance(error, UnsupportedOpError) and error.location is not None):
                    error.add_note(f"in pass {step}")
                raise
            compilation = changed
            if after is not None:
                after(step, compilation)
        return compilation

    def before(self, name: str) -> Pipeline:
        """The steps before the first one of that name; all where there is none."""
        ends = [k for k, step in enumerate(self.steps) if step.name == name]
        return dataclasses.replace(self, steps=self.steps[: ends[0]]) if ends else self

    def through(self, name: str) -> Pipeline:
        """The steps up to the last one of that name. ArgumentError where there is none."""
        if name not in _by_name:
            raise _hinted(ArgumentError(f"no step is called {name}"), name, _by_name)
        ends = [k for k, step in enumerate(self.steps) if step.name == name]
        if not ends:
            raise ArgumentError(f"the pipeline has no step {name}")
        return dataclasses.replace(self, steps=self.steps[: ends[-1] + 1])

    def __str__(self) -> str:
        return ",".join(map(str, self.steps))


def parse_pipeline(text: str, origin: str = "<pipeline>") -> Pipeline:
    """The pipeline that a text names; it verifies the module between its steps.

    origin: the name of the text in errors. Raises ArgumentError, located, with the expected form.
    """
    return _Parser(text, origin).run()


class _Parser:
    """One run over one text. begin, end: of the present token, "" behind the last one."""

    def __init__(self, text: str, origin: str) -> None:
        self.text, self.origin = text, origin
        self.token, self.begin, self.end = "", 0, 0
        self.advance()

    def run(self) -> Pipeline:
        steps = [self.step()]
        while self.token == ",":
            self.advance()
            steps.append(self.step())
        if self.token:
            raise self.error(f"expected , or the end, found {self.token}")
        return Pipeline(tuple(steps), verify=True)

    def step(self) -> Step:
        if self.token not in _by_name:
            found = f"no step is called {self.token}" if self.token not in ("", *",{}=") else "expected a step"
            raise self.error(found, _by_name)
        kind = _by_name[self.token]
        self.advance()
        given: dict[str, int | str] = {}
        if self.token == "{":
            self.advance()
            while self.token != "}":
                self.parameter(kind, given)
            self.advance()
        return kind(**{name.replace("-", "_"): value for name, value in given.items()})

    def parameter(self, kind: type[Step], given: dict[str, int | str]) -> None:
        name, known = self.token, kind().parameters
        if name not in known or name in given:
            takes = f"{kind.name} takes {', '.join(known)}" if known else f"{kind.name} takes no parameters"
            found = f"{name} is given twice" if name in given else f"expected a parameter or }}: {takes}"
            raise self.error(found, known)
        self.advance()
        if self.token != "=":
            raise self.error(f"expected = and the value of {name}")
        self.advance()
        given[name] = self.value(name, kind().words.get(name, ()))
        self.advance()

    def value(self, name: str, words: Sequence[str]) -> int | str:
        """The present token as the value of a parameter. words: that it may be; none for a whole number."""
        if self.token in words:
            return self.token
        if not words and self.token.isascii() and self.token.isdigit():
            return int(self.token)
        expected = f"one of {', '.join(words)}" if words else "a whole number"
        raise self.error(f"{name}: expected {expected}, found {self.token or 'the end'}", words)

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.end)
        assert match is not None
        self.token, self.begin, self.end = match[1], match.start(1), match.end(1)

    def error(self, message: str, words: Iterable[str] = ()) -> ArgumentError:
        """An error at the present token; a near one of `words` is proposed."""
        line = self.text.count("\n", 0, self.begin)
        start = self.text.rfind("\n", 0, self.begin) + 1
        column = self.begin - start + 1
        end = column + max(1, len(self.token))
        where = Location(self.origin, line + 1, column, end, self.text.split("\n")[line])
        return _hinted(ArgumentError(message, where), self.token, words)


def _hinted(error: ArgumentError, word: str, words: Iterable[str]) -> ArgumentError:
    near = nearest(word, words)
    error.add_note("hint: `distxla compile --list-passes` names all" if near is None else did_you_mean(near))
    return error


__all__ = ["STEPS", "Pipeline", "parse_pipeline"]
