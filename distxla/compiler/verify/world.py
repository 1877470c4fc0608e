"""The verifier of a whole run: rules that its programs must keep together, known before anything starts.

Each program keeps its own rules for the run's counts (`verify.verify_module`). Besides: counts in headers are the
run's (`world.counts`); all members of a group with a device run a program (`world.devices`), which has the same
collectives of that group (`world.collectives`), in the same order (`world.order`); sends and recvs agree
(`channel.*`, in collectives/channels.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

from distxla.collectives.channels import module_transfers
from distxla.collectives.signature import differences, signature, summary
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import CollectiveMismatchError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.location import Location
from distxla.ops.support.executable import CollectiveOp

# which devices act together, and for permutes how: members meet where these are equal
_Key = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


def verify_world(
    programs: Iterable[tuple[Iterable[int], Module]],
    counts: Counts,
    *,
    in_order: bool = True,
    assignment: Sequence[int] | None = None,
) -> None:
    """Raise the error, located in a program's text, for the first rule that the programs of a run break:
    CollectiveMismatchError for `world.collectives`, `world.order` and `channel.shape`, DeadlockError for `channel.send`
    and `channel.recv`, whose messages don't name them, else VerificationError.

    programs: each with the flattened ids of the devices that run it, disjoint.  in_order: whether the order of the text
    is that of the run, so that `world.order` holds.  assignment: as for `verify_together`.
    """
    run = [(tuple(devices), module) for devices, module in programs]
    for _, module in run:
        check_counts(module, counts)
        verify_module(module, counts.replicas, counts.partitions)
    verify_together(run, counts, in_order=in_order, assignment=assignment)


def verify_together(
    programs: Iterable[tuple[Iterable[int], Module]],
    counts: Counts,
    *,
    in_order: bool = True,
    assignment: Sequence[int] | None = None,
) -> None:
    """Checks several programs for `verify_world`, each of which has been verified for these counts.

    assignment: of the only program, the device that has each of its flattened ids, where those are not the devices.
    """
    run = [(tuple(devices), module) for devices, module in programs]
    _Groups(run, counts, in_order).check()
    module_transfers(run, counts, assignment)


def verify_order(programs: Iterable[tuple[Iterable[int], Module]], counts: Counts) -> None:
    """Rule `world.order`, of programs for which `verify_together` has found the others kept."""
    _Groups([(tuple(devices), module) for devices, module in programs], counts, True).check()


def check_counts(module: Module, counts: Counts) -> None:
    """Rule world.counts: the header's counts are those of the run."""
    for name, stated, found in (
        ("replica_count", module.replica_count, counts.replicas),
        ("num_partitions", module.num_partitions, counts.partitions),
    ):
        if stated is not None and stated != found:
            message = f"{module.name} says {name}={stated}, the run has {found}"
            raise VerificationError(f"world.counts: {message}", module.locate_header(name))


@dataclass(frozen=True)
class _Collective:
    """A collective of a program in the order of the text. operands: their shapes."""

    module: Module
    instruction: Instruction
    operands: tuple[Shape, ...]

    @property
    def is_in_entry(self) -> bool:
        return self.module.entry_computation.by_name.get(self.instruction.name) is self.instruction

    @property
    def location(self) -> Location | None:
        return self.module.locate(self.instruction)

    @property
    def signature(self) -> int:
        return signature(self.module, self.instruction, self.operands)

    def difference(self, other: _Collective) -> str:
        return differences(
            summary(self.module, self.instruction, self.operands),
            summary(other.module, other.instruction, other.operands),
        )

    def __str__(self) -> str:
        where = self.location
        return f"{self.instruction.name} ({where})" if where else self.instruction.name


@dataclass
class _Rounds:
    """One program's collectives in one group. always: in each run, once; sometimes: in loops and branches."""

    always: list[_Collective] = field(default_factory=list)
    sometimes: list[_Collective] = field(default_factory=list)


class _Groups:
    """Collectives of all programs by their groups."""

    def __init__(self, run: Sequence[tuple[tuple[int, ...], Module]], counts: Counts, in_order: bool) -> None:
        self.run = run
        self.in_order = in_order
        self.counts = counts
        self.running = {device: number for number, (devices, _) in enumerate(run) for device in devices}
        self.rounds: dict[_Key, dict[int, _Rounds]] = defaultdict(lambda: defaultdict(_Rounds))

    def check(self) -> None:
        if len(self.running) == self.counts.devices and len(self.run) == 1:
            return
        for number, (devices, module) in enumerate(self.run):
            mine = set(devices)
            for collective, always in _collectives(module):
                for key in self._keys(collective):
                    if mine.intersection(key[0]):
                        self._require_programs(collective, key[0])
                        rounds = self.rounds[key][number]
                        (rounds.always if always else rounds.sometimes).append(collective)
        for key, by_program in self.rounds.items():
            self._compare(key, by_program)

    def _keys(self, collective: _Collective) -> Iterator[_Key]:
        op = collective.instruction.op
        assert isinstance(op, CollectiveOp)
        pairs = op.device_pairs(self.counts)
        for group in op.device_groups(self.counts):
            if len(group) > 1:
                yield group, pairs

    def _require_programs(self, collective: _Collective, group: Sequence[int]) -> None:
        idle = [device for device in group if device not in self.running]
        if idle:
            raise VerificationError(
                f"world.devices: {collective.instruction.name} joins devices {_listed(group)}, but no program runs on "
                f"{_listed(idle)}",
                _at_groups(collective),
            )

    def _compare(self, key: _Key, by_program: dict[int, _Rounds]) -> None:
        """The programs of a group's members have the same rounds of it, as far as the text shows."""
        group = key[0]
        involved = sorted({self.running[device] for device in group})
        present = [number for number in involved if number in by_program]
        for number in involved:
            if number not in by_program:
                certain = next((by_program[p].always[0] for p in present if by_program[p].always), None)
                if certain is not None:
                    devices = _listed(device for device in group if self.running[device] == number)
                    text = (
                        f"{certain.instruction.name} joins devices {_listed(group)}, but {self.run[number][1].name}, "
                    )
                    text += f"which runs on {devices}, has no collective of that group"
                    raise CollectiveMismatchError(text, _at_groups(certain))
        if any(by_program[number].sometimes for number in present):
            return
        for one, other in pairwise(present):
            self._compare_two(group, by_program[one].always, by_program[other].always)

    def _compare_two(self, group: Sequence[int], one: list[_Collective], other: list[_Collective]) -> None:
        counts = Counter(c.signature for c in one), Counter(c.signature for c in other)
        if counts[0] == counts[1]:
            if self.in_order and all(c.is_in_entry for c in (*one, *other)):
                self._compare_order(group, one, other)
            return
        (mine, more), (theirs, less) = (one, counts[0] - counts[1]), (other, counts[1] - counts[0])
        if not more:
            (mine, more), (theirs, less) = (theirs, less), (mine, more)
        lonely = next(c for c in mine if c.signature in more)
        text = f"{lonely.instruction.name} joins devices {_listed(group)}, but "
        near = next((c for c in theirs if c.signature in less), None)
        if near is None:
            text += f"{theirs[0].module.name} has {len(theirs)} collective(s) of that group, {lonely.module.name} "
            text += f"has {len(mine)}"
        else:
            text += f"what {near.module.name} has there is {near}; they differ in {lonely.difference(near)}"
        raise CollectiveMismatchError(text, lonely.location)

    def _compare_order(self, group: Sequence[int], one: list[_Collective], other: list[_Collective]) -> None:
        """Of a program that runs on a part of the devices rounds stay in the text's order."""
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True), 1):
            if mine.signature != theirs.signature:
                raise CollectiveMismatchError(
                    f"{mine.instruction.name} is round {number} of devices {_listed(group)} in "
                    f"{mine.module.name}, in {theirs.module.name} it is {theirs}; they differ in "
                    f"{mine.difference(theirs)}",
                    mine.location,
                )


def _collectives(module: Module) -> Iterator[tuple[_Collective, bool]]:
    """Every collective that the entry can reach, and whether each run of the program executes it exactly once."""
    callers: dict[str, list[tuple[str, Instruction]]] = defaultdict(list)
    for computation in module.reached():
        for instruction in computation:
            # a completing instruction names the computation of its start again
            for called in () if instruction.op.start_done.completes else instruction.op.called_computations:
                callers[called].append((computation.name, instruction))

    @cache
    def executed_once(name: str) -> bool:
        if name == module.entry:
            return True
        caller, instruction = callers[name][0]
        return len(callers[name]) == 1 and instruction.op.lowering is not Lowering.CONTROL and executed_once(caller)

    for computation in module.reached():
        for instruction in computation:
            if instruction.op.is_collective and not instruction.op.start_done.completes:
                operands = tuple(operand.shape for operand in computation.operands(instruction))
                yield _Collective(module, instruction, operands), executed_once(computation.name)


def _at_groups(collective: _Collective) -> Location | None:
    """Where the groups or pairs are written, else the instruction."""
    spans = collective.instruction.attribute_spans
    part = next((name for name in ("replica_groups", "source_target_pairs") if name in spans), None)
    return collective.module.locate(collective.instruction, part)


def _listed(devices: Iterable[int]) -> str:
    return ", ".join(map(str, devices))
