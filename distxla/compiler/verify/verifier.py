"""The verifier: rules that an HLO module must keep before anything else looks at it.

Each op checks its own shapes and attributes (`Op.verify`); rules for several instructions or the module are here and in
the files beside this one. Rule ids: those of an op begin with its opcode, the others with `module`,
`computation`, `parameter`, `control`, `schedule`, `shape`, `channel`, `sharding` or `buffer`.
"""

from __future__ import annotations

from collections.abc import Iterator

from distxla.compiler.verify.aliases import verify_aliases
from distxla.compiler.verify.async_pairs import verify_pairs
from distxla.compiler.verify.buffer_types import verify_buffers
from distxla.compiler.verify.callers import verify_callers
from distxla.compiler.verify.channel_ids import verify_channels
from distxla.compiler.verify.shardings import verify_shardings
from distxla.compiler.verify.transfer_contexts import verify_contexts
from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import RuleViolation
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.support.executable import CollectiveOp, executable
from distxla.time_limit import at

ADDRESSABLE_BYTES = 1 << 47  # of a process; 64-bit processors give it as many or more


def verify_module(module: Module, replicas: int | None = None, partitions: int | None = None) -> None:
    """Raise VerificationError for the first rule that the module breaks; its location points into the text.

    replicas, partitions: the run's counts where they are known; otherwise the header's count where it has them. Groups
    and pairs are compared with the counts only where both are known.
    """
    _Verifier(module, replicas or module.replica_count, partitions or module.num_partitions).run()


class _Verifier:
    """One run over one module."""

    def __init__(self, module: Module, replicas: int | None, partitions: int | None) -> None:
        self.module = module
        self.replicas, self.partitions = replicas, partitions
        self._shapes: dict[str, ProgramShape] = {}

    def run(self) -> None:
        """Structure first, since later checks look operands and computations up by name."""
        module = self.module
        names = [c.name for c in module.computations]
        self.require(len(set(names)) == len(names), "module.names", f"two computations are named {_repeated(names)}")
        self.require(module.entry in names, "module.entry", f"there is no computation {module.entry}")
        for computation in module.computations:
            at(computation.name)
            self._structure(computation)
        self._call_graph()
        self._entry_layout()
        self._entry_size()
        verify_aliases(module)
        for computation in module.computations:
            self._control(computation)
            self._instructions(computation)
        verify_pairs(module)
        verify_callers(module)
        verify_channels(module)
        verify_contexts(module)
        verify_shardings(module, self.partitions)
        verify_buffers(module)

    # --- reporting ----------------------------------------------------------------------------------------------

    def require(
        self, condition: object, rule: str, message: str, at: Instruction | None = None, part: str | None = None
    ) -> None:
        if not condition:
            raise VerificationError(f"{rule}: {message}", self.module.locate(at, part) if at is not None else None)

    # --- structure ----------------------------------------------------------------------------------------------

    def _structure(self, computation: Computation) -> None:
        """Names, operands, root and parameters."""
        seen: set[str] = set()
        for i in computation:
            self.require(
                i.name not in seen, "computation.names", f"two instructions of {computation.name} are named {i.name}", i
            )
            for operand in i.operands:
                self.require(
                    operand in seen,
                    f"{i.opcode}.operands",
                    f"{operand} is not defined before {i.name} in {computation.name}",
                    i,
                    "operands",
                )
            seen.add(i.name)
            self._operand_count(i)
            for name in i.op.called_computations:
                self.require(
                    name in self.module.by_name, f"{i.opcode}.computation", f"there is no computation {name}", i
                )
            for predecessor in i.control_predecessors:
                self.require(
                    predecessor in computation.by_name,
                    "control.exists",
                    f"{computation.name} has no instruction {predecessor}",
                    i,
                    "control-predecessors",
                )
            self._layouts(i)
        self.require(computation.root in seen, "computation.root", f"{computation.name} has no {computation.root}")
        for number, parameter in enumerate(computation.parameters):
            have = parameter.op.number  # type: ignore[attr-defined]
            self.require(
                have == number,
                "parameter.number",
                f"the parameters of {computation.name} must be numbered from 0 without gap or repetition; "
                f"{parameter.name} is {have} where {number} is due",
                parameter,
            )

    def _operand_count(self, i: Instruction) -> None:
        want, have = i.op.operand_count, len(i.operands)
        message = f"takes {want} operands, has {have}"
        self.require(want.allows(have), f"{i.opcode}.operands", message, i, "operands")

    def _layouts(self, i: Instruction) -> None:
        for leaf in i.shape.leaves():
            layout = leaf.layout
            if layout is not None and leaf.is_array:
                self.require(
                    sorted(layout.minor_to_major) == list(range(leaf.rank)),
                    "shape.layout",
                    f"minor-to-major order {list(layout.minor_to_major)} of {leaf} is no order of its dimensions",
                    i,
                    "shape",
                )

    def _call_graph(self) -> None:
        """No computation calls itself, directly or not."""
        done: set[str] = set()
        for start in self.module.computations:
            path: dict[str, Iterator[tuple[Instruction, str]]] = {start.name: self._calls(start)}
            while path:
                name, calls = next(reversed(path.items()))
                found = next((call for call in calls if call[1] not in done), None)
                if found is None:
                    done.add(name)
                    del path[name]
                    continue
                instruction, callee = found
                if callee in path:
                    cycle = [*list(path)[list(path).index(callee) :], callee]
                    self.require(False, "module.recursion", f"{' calls '.join(cycle)}", instruction)
                path[callee] = self._calls(self.module[callee])

    def _calls(self, computation: Computation) -> Iterator[tuple[Instruction, str]]:
        return ((i, name) for i in computation for name in i.op.called_computations)

    def _entry_layout(self) -> None:
        layout, entry = self.module.entry_layout, self.module.entry_computation
        if layout is None:
            return
        have = entry.program_shape
        self.require(
            len(layout.parameters) == len(have.parameters),
            "module.layout",
            f"entry_computation_layout has {len(layout.parameters)} parameters, not {len(have.parameters)}",
            entry.parameters[-1] if entry.parameters else entry.root_instruction,
        )
        for parameter, stated in zip(entry.parameters, layout.parameters):
            self.require(
                stated.compatible(parameter.shape),
                "module.layout",
                f"entry_computation_layout says {stated} for parameter {parameter.name}: {parameter.shape}",
                parameter,
                "shape",
            )
        self.require(
            layout.result.compatible(have.result),
            "module.layout",
            f"entry_computation_layout says {layout.result} for the result: {have.result}",
            entry.root_instruction,
            "shape",
        )

    def _entry_size(self) -> None:
        """Arguments and results that no machine can hold cannot be meant."""
        entry = self.module.entry_computation
        ends = (*entry.parameters, entry.root_instruction)
        sizes = [0 if i.shape.is_unbounded else i.shape.byte_size for i in ends]
        self.require(
            sum(sizes) <= ADDRESSABLE_BYTES,
            "module.size",
            f"a device takes and gives {sum(sizes)} bytes; a process can address {ADDRESSABLE_BYTES}",
            ends[sizes.index(max(sizes))],
            "shape",
        )

    # --- order --------------------------------------------------------------------------------------------------

    def _control(self, computation: Computation) -> None:
        """Control edges make no cycle; in a scheduled module they point backwards in the text."""
        if not any(i.control_predecessors for i in computation):
            return
        places = {i.name: n for n, i in enumerate(computation)}
        if self.module.is_scheduled:
            for i in computation:
                for predecessor in i.control_predecessors:
                    self.require(
                        places[predecessor] < places[i.name],
                        "schedule.order",
                        f"{i.name} is scheduled before its control predecessor {predecessor}",
                        i,
                        "control-predecessors",
                    )
        waiting = {i.name: len({*i.operands, *i.control_predecessors}) for i in computation}
        successors: dict[str, list[str]] = {name: [] for name in waiting}
        for i in computation:
            for before in {*i.operands, *i.control_predecessors}:
                successors[before].append(i.name)
        ready = [name for name, count in waiting.items() if not count]
        while ready:
            for name in successors[ready.pop()]:
                waiting[name] -= 1
                if not waiting[name]:
                    ready.append(name)
        stuck = next((computation[name] for name, count in waiting.items() if count), None)
        if stuck is not None:
            cycle = _cycle(computation, {name for name, count in waiting.items() if count}, stuck)
            first = computation[cycle[0]]
            self.require(False, "control.cycle", f"{' waits for '.join(cycle)}", first, "control-predecessors")

    # --- instructions -------------------------------------------------------------------------------------------

    def _instructions(self, computation: Computation) -> None:
        """Every op's own rules, and its groups where the counts are known."""
        for i in computation:
            at(i.name)
            operands = tuple(o.shape for o in computation.operands(i))
            try:
                converted = i.op.verified(i.shape, operands, self._called)
                executable(i.op).verify_annotations(i)
                shape, operands = (i.shape, operands) if converted is None else (converted.shape, converted.operands)
                if self.replicas is not None and self.partitions is not None:
                    self._groups(i, shape, operands, Counts(self.replicas, self.partitions))
            except RuleViolation as violation:
                raise VerificationError(violation.message, self.module.locate(i, violation.at)) from None

    def _called(self, name: str) -> ProgramShape:
        return self.module[name].program_shape

    def _groups(self, i: Instruction, shape: Shape, operands: tuple[Shape, ...], counts: Counts) -> None:
        if not isinstance(i.op, CollectiveOp):
            return
        groups = i.op.device_groups(counts)
        for size in sorted({len(group) for group in groups}):
            i.op.check_size(shape, operands, size)


def _repeated(names: list[str]) -> str:
    return next((n for n in names if names.count(n) > 1), "")


def _cycle(computation: Computation, stuck: set[str], start: Instruction) -> list[str]:
    """Names along a cycle among the instructions that wait for one another, the first one repeated at the end."""
    path: list[str] = [start.name]
    while True:
        i = computation[path[-1]]
        before = next(name for name in (*i.control_predecessors, *i.operands) if name in stuck)
        if before in path:
            return [*path[path.index(before) :], before]
        path.append(before)
