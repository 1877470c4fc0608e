"""What devices of the lock step wait for: conditions, rounds of collectives, computations that run beside a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from distxla.errors import CollectiveMismatchError
from distxla.ops.op import CollectiveOp

if TYPE_CHECKING:
    from distxla.reference.evaluation import InstructionEvaluation


class Wait(ABC):
    """Why a device has given the baton back."""

    # whether something outside the lock step may make it ready: then it is no deadlock that nobody can go on
    from_outside: ClassVar[bool] = False

    @abstractmethod
    def ready(self) -> bool:
        """Whether the device can go on. Asked by the world between turns; changes nothing and does not block."""

    @abstractmethod
    def describe(self) -> str:
        """What the device waits in and for whom: `all-reduce.7 (ring.hlo:14:3) for 1, 2`."""


@dataclass(frozen=True)
class Pending(Wait):
    """What an instruction has begun and another one waits for; may stand for a value of any shape in between.

    run: the instruction that began it, or the one that waits.
    """

    run: InstructionEvaluation

    def awaited_by(self, run: InstructionEvaluation) -> Pending:
        return replace(self, run=run)

    @property
    @abstractmethod
    def result(self) -> Any:
        """What came of it; may be asked when `ready`."""


@dataclass(frozen=True)
class Settled(Pending):
    """What needs nobody else."""

    value: Any

    def ready(self) -> bool:
        return True

    def describe(self) -> str:
        return name_of(self.run)

    @property
    def result(self) -> Any:
        return self.value


@dataclass
class Round:
    """One execution of a collective by a group. comers: who has come, with what. answers: once all have."""

    members: tuple[int, ...]
    comers: dict[int, tuple[InstructionEvaluation, tuple[Any, ...]]] = field(default_factory=dict)
    answers: dict[int, Any] | None = None

    def come(self, run: InstructionEvaluation, operands: tuple[Any, ...]) -> None:
        """The device of `run` has come; the last one evaluates the round."""
        self.comers[run.device.id] = (run, operands)
        if len(self.comers) < len(self.members):
            return
        ordered = [self.comers[member] for member in self.members]
        runs = [run for run, _ in ordered]
        _check_same(runs)
        op = cast(CollectiveOp, run.instruction.op)
        found = op.evaluate_group(self.members, [operands for _, operands in ordered], runs[0])
        self.answers = dict(zip(self.members, found, strict=True))


@dataclass(frozen=True)
class PendingRound(Pending):
    """A device's share in a round that it has come to."""

    round: Round
    device: int

    def ready(self) -> bool:
        return self.round.answers is not None

    def describe(self) -> str:
        missing = [member for member in self.round.members if member not in self.round.comers]
        return f"{name_of(self.run)} for {', '.join(map(str, missing))}"

    @property
    def result(self) -> Any:
        assert self.round.answers is not None
        return self.round.answers[self.device]


class Rounds:
    """Rounds of all groups: a member's k-th coming to a group belongs to the group's k-th round."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, ...], list[Round]] = defaultdict(list)

    def come(self, run: InstructionEvaluation, members: tuple[int, ...], operands: tuple[Any, ...]) -> Pending:
        """Raises CollectiveMismatchError where this completes a round of different instructions."""
        waiting, device = self._open[members], run.device.id
        found = next((r for r in waiting if device not in r.comers), None)
        if found is None:
            found = Round(members)
            waiting.append(found)
        found.come(run, operands)
        if found.answers is not None:
            waiting.remove(found)
        return PendingRound(run, found, device)


@dataclass
class Outcome:
    """What a computation that runs beside its device's program has come to."""

    finished: bool = False
    value: Any = None


@dataclass(frozen=True)
class PendingComputation(Pending):
    """A computation that was started beside the device's program."""

    computation: str
    outcome: Outcome

    def ready(self) -> bool:
        return self.outcome.finished

    def describe(self) -> str:
        return f"{name_of(self.run)} for its computation {self.computation}"

    @property
    def result(self) -> Any:
        return self.outcome.value


def _check_same(runs: Sequence[InstructionEvaluation]) -> None:
    """All members must have come with the same kind of collective and operands of the same shapes."""
    first = runs[0]
    for other in runs[1:]:
        same_shapes = [s.without_layout() for s in other.operand_shapes] == [
            s.without_layout() for s in first.operand_shapes
        ]
        ours, theirs = cast(CollectiveOp, other.instruction.op), cast(CollectiveOp, first.instruction.op)
        if ours.round_opcode != theirs.round_opcode or not same_shapes:
            raise CollectiveMismatchError(
                f"device {first.device.id} came with {name_of(first)}, device {other.device.id} with {name_of(other)}",
                other.device.module.locate(other.instruction),
            )


def name_of(run: InstructionEvaluation) -> str:
    """`all-reduce.7 (ring.hlo:14:3)`."""
    location = run.device.module.locate(run.instruction)
    name = run.instruction.name
    return f"{name} ({location})" if location else name


__all__ = ["Outcome", "Pending", "PendingComputation", "PendingRound", "Rounds", "Settled", "Wait", "name_of"]
