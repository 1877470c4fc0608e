"""Row fusion: a chain of fusions, reductions among them, that goes through all of them one row after the other.

Softmax and normalisations are such chains: each row is read once and stays in the cache until its results are written.
The result is expressed in HLO itself: a fusion whose computation holds fusions (ops/support/row_limits.py).
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from distxla.compiler.passes.fuse import awaited, running_computations
from distxla.compiler.passes.in_flight_operations import InFlightOperations
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Lowering
from distxla.ir.order import stable_order
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.call import Fusion
from distxla.ops.parameter import Parameter
from distxla.ops.support.row_limits import RowLimits, common_rows, row_limits
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.rewrites.step import Pass


@dataclass(frozen=True)
class FuseRows(Pass):
    """Wrap fusions that read each other's results row by row into one fusion. Runs after Fuse."""

    name: ClassVar[str] = "fuse-rows"
    shortest: int = 32  # elements of a row: shorter ones would be loops of a few steps
    longest: int = 1 << 19  # bytes of the rows of all results of one fusion, which are to stay in the cache
    most: int = 24  # fusions in one

    def run(self, module: Module) -> Module:
        running = running_computations(module)
        names = Names(module.by_name)
        new: list[Computation] = []
        for computation in module.computations:
            if computation.name in running:
                new.extend(_Grouping(self, module, computation).rewritten(names))
            else:
                new.append(computation)
        return module.with_computations(new)


@dataclass(eq=False)
class _Rows:
    """A row fusion in the making. members: its fusions; attached: elements and views of their results, both in order.

    first: position of its first member.  dimension_sizes: of the rows' dimensions.  reduces: whether a member does.
    """

    first: int
    dimension_sizes: tuple[int, ...]
    members: list[Instruction] = field(default_factory=list)
    attached: list[Instruction] = field(default_factory=list)
    reduces: bool = False

    @property
    def names(self) -> set[str]:
        return {i.name for i in (*self.members, *self.attached)}


class _Grouping:
    def __init__(self, settings: FuseRows, module: Module, computation: Computation) -> None:
        self.settings = settings
        self.module = module
        self.computation = computation
        self.position = {instruction.name: i for i, instruction in enumerate(computation)}
        self.stays = awaited(computation)
        self.pairs = InFlightOperations(computation)
        for name in tuple(self.stays):
            if computation[name].op.role.is_tuple_element:
                self.stays.add(computation[name].operands[0])  # an element stays beside its tuple
        self.group_of: dict[str, _Rows] = {}
        self.groups: list[_Rows] = []

    def rewritten(self, names: Names) -> list[Computation]:
        """The computations of rows and, last, the computation with fusions of them in place of their members."""
        for instruction in self.computation:
            if instruction.name in self.stays:
                continue
            if self.is_candidate(instruction):
                self.place(instruction)
            elif (group := self.attaches_to(instruction)) is not None:
                group.attached.append(instruction)
                self.group_of[instruction.name] = group
        groups = [g for g in self.groups if len(g.members) > 1 and g.reduces]
        if not groups:
            return [self.computation]
        return self.build(groups, names)

    def is_candidate(self, instruction: Instruction) -> bool:
        if not isinstance(instruction.op, Fusion) or instruction.control_predecessors:
            return False
        shapes = (instruction.shape, *(o.shape for o in self.computation.operands(instruction)))
        if any(shape.is_dynamic or any(not leaf.is_array for leaf in shape.leaves()) for shape in shapes):
            return False
        if not instruction.shape.is_tuple:
            return True
        # A tuple as a whole has no rows: only its elements are used.
        users = [self.computation[user] for user in self.computation.users[instruction.name]]
        only_elements = all(u.op.role.is_tuple_element and not u.control_predecessors for u in users)
        return instruction.name != self.computation.root and only_elements

    def attaches_to(self, instruction: Instruction) -> _Rows | None:
        """The group that an element of a member's tuple, or a view of a member's result, belongs to."""
        if len(instruction.operands) != 1 or instruction.control_predecessors or instruction.shape.is_tuple:
            return None
        group = self.group_of.get(instruction.operands[0])
        if group is None or instruction.op.role.is_tuple_element:
            return group
        if instruction.op.lowering is not Lowering.ELEMENT:
            return None
        operands = [o.shape for o in self.computation.operands(instruction)]
        (leading,) = instruction.op.leading_dimensions(instruction.shape, operands)
        return group if leading >= len(group.dimension_sizes) else None

    def place(self, fusion: Instruction) -> None:
        """Let a fusion join a group whose results it reads, or begin a group."""
        called: Fusion = fusion.op  # type: ignore[assignment]
        fused = self.module[called.calls]
        limits = row_limits(fused)
        dimension_sizes = self.dimension_sizes(fusion, limits.results)
        sources = {id(g): g for name in fusion.operands if (g := self.group_of.get(name)) is not None}
        group = next((g for g in reversed(sources.values()) if self.may_join(g, fusion, limits, dimension_sizes)), None)
        if group is None:
            group = _Rows(self.position[fusion.name], dimension_sizes)
            self.groups.append(group)
        else:
            group.dimension_sizes = self.joined_sizes(group, fusion, limits, dimension_sizes)
        group.members.append(fusion)
        root = fused.root_instruction
        parts = (root, *fused.operands(root))
        group.reduces |= any(part.op.lowering is Lowering.REDUCTION for part in parts)
        self.group_of[fusion.name] = group

    def dimension_sizes(self, fusion: Instruction, limit: int) -> tuple[int, ...]:
        leaves = list(fusion.shape.leaves())
        found = leaves[0].dims[:limit]
        for leaf in leaves:
            found = common_rows(leaf.dims, found, limit)
        return found

    def joined_sizes(
        self, group: _Rows, fusion: Instruction, limits: RowLimits, dimension_sizes: tuple[int, ...]
    ) -> tuple[int, ...]:
        limit = limits.results
        for name, k in zip(fusion.operands, limits.parameters):
            if self.group_of.get(name) is group:
                limit = min(limit, k)
        return common_rows(group.dimension_sizes, dimension_sizes, limit)

    def may_join(self, group: _Rows, fusion: Instruction, limits: RowLimits, own: tuple[int, ...]) -> bool:
        if any(self.pairs.separate(member.name, fusion.name) for member in group.members):
            return False
        dimension_sizes = self.joined_sizes(group, fusion, limits, own)
        count = prod(dimension_sizes)
        if not dimension_sizes or count < 2 or len(group.members) >= self.settings.most:
            return False
        # The length of rows shows in the fusions' operands: a reduction's results may be scalars.
        shapes = [leaf for member in (*group.members, fusion) for leaf in member.shape.leaves()]
        read = [o.shape for member in (*group.members, fusion) for o in self.computation.operands(member)]
        longest = max(leaf.size for shape in (*shapes, *read) for leaf in shape.leaves())
        if longest < self.settings.shortest * count:
            return False
        if sum(leaf.byte_size for leaf in shapes) > self.settings.longest * count:
            return False
        outside = [name for name in fusion.operands if self.group_of.get(name) is not group]
        return not self.depend(outside, group)

    def depend(self, names: list[str], group: _Rows) -> bool:
        """Whether any of these instructions needs a result of the group; a group needs all that its members do."""
        seen: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            other = self.group_of.get(name)
            if other is group:
                return True
            instructions = [self.computation[name]] if other is None else other.members
            seen.update(i.name for i in instructions)
            for instruction in instructions:
                for operand in (*instruction.operands, *instruction.control_predecessors):
                    # An instruction before the group's first member can't need it, unless it has joined a group.
                    if self.position[operand] >= group.first or operand in self.group_of:
                        pending.append(operand)
        return False

    def build(self, groups: list[_Rows], names: Names) -> list[Computation]:
        local = Names(self.computation.by_name)
        made: list[Computation] = []
        gone: set[str] = set()
        placed: list[tuple[int, Instruction]] = []
        for group in groups:
            rows, outputs, operands = self.rows(group, names)
            made.append(rows)
            inside = group.names
            for instruction in (*group.members, *group.attached):
                is_view = instruction.op.lowering is Lowering.ELEMENT
                if not is_view or not self.is_used_outside(instruction.name, inside):
                    gone.add(instruction.name)
            last = group.members[-1]
            whole = Instruction(
                outputs[0] if len(outputs) == 1 else local.fresh(f"{last.name}.rows"),
                rows.root_instruction.shape,
                Fusion(kind="kLoop", calls=rows.name),
                operands,
                metadata=last.metadata,
                span=last.span,
            )
            at = self.position[last.name]
            placed.append((at, whole))
            if len(outputs) > 1:
                parts = [(name, self.computation[name]) for name in outputs]
                placed += (
                    (at, Instruction(name, part.shape, GetTupleElement(index=k), (whole.name,), span=part.span))
                    for k, (name, part) in enumerate(parts)
                )
        placed += ((k, i) for k, i in enumerate(self.computation) if i.name not in gone)
        rebuilt = Computation(
            self.computation.name,
            stable_order([i for _, i in sorted(placed, key=lambda entry: entry[0])]),
            self.computation.root,
            self.computation.execution_thread,
            self.computation.span,
        )
        return [*made, rebuilt]

    def rows(self, group: _Rows, names: Names) -> tuple[Computation, list[str], tuple[str, ...]]:
        """The computation of rows, the names of its results, and of its operands."""
        inside = group.names
        body = sorted((*group.members, *group.attached), key=lambda i: self.position[i.name])
        parameters: dict[str, Instruction] = {}
        for member in group.members:
            for operand in member.operands:
                if operand not in inside and operand not in parameters:
                    shape = self.computation[operand].shape.without_layout()
                    parameters[operand] = Instruction(operand, shape, Parameter(number=len(parameters)))
        views = {a.name for a in group.attached if not a.op.role.is_tuple_element}
        outputs: list[str] = []
        for instruction in body:
            if instruction.shape.is_tuple or instruction.name in views:
                continue
            users = self.computation.users[instruction.name]
            outside = any(
                user not in inside or (user in views and self.is_used_outside(user, inside)) for user in users
            )
            if outside or instruction.name == self.computation.root:
                outputs.append(instruction.name)
        root = outputs[0]
        instructions = [*parameters.values(), *body]
        if len(outputs) > 1:
            root = Names(i.name for i in instructions).fresh("results")
            shape = Shape.tuple(tuple(self.computation[name].shape for name in outputs))
            instructions.append(Instruction(root, shape, Tuple(), tuple(outputs)))
        name = names.fresh(f"rows_{group.members[-1].name}")
        return Computation(name, tuple(instructions), root), outputs, tuple(parameters)

    def is_used_outside(self, view: str, inside: set[str]) -> bool:
        """Whether a view of a result, or a view of that, is read outside of the group."""
        if view == self.computation.root:
            return True
        return any(u not in inside or self.is_used_outside(u, inside) for u in self.computation.users[view])
