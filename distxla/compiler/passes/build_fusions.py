"""Groups of instructions that will share one loop, written as fusion instructions."""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.names import Names
from distxla.ir.order import stable_order
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.call import Fusion
from distxla.ops.constant import Constant
from distxla.ops.parameter import Parameter
from distxla.ops.tuple import GetTupleElement, Tuple

EMBEDDED_BYTES = 1024  # larger constants are read from memory, unless all their elements are equal

Path = tuple[object, ...]


@dataclass(eq=False)
class Group:
    """A fusion in the making: roots (results that go to memory) and members (the roots included), by name.

    paths: for each member the indices at which one iteration reads it, as paths from the roots; elements that are
    read at the root's own index have the path ().
    """

    roots: list[str]
    iterations: int  # elements that the loop visits
    paths: dict[str, set[Path]] = field(default_factory=dict)

    @property
    def evaluations(self) -> int:
        return sum(map(len, self.paths.values()))


def build_fusions(computation: Computation, groups: list[Group], bare: set[str], names: Names) -> list[Computation]:
    """The fused computations and, last, the computation with fusion instructions in place of the groups' roots.

    bare: instructions that stay, although groups may compute them, too.  names: of the module's computations. A fusion
    with one result has its root's name, and so has each element that is taken out of one with several.
    """
    if not groups:
        return [computation]
    order = {instruction.name: i for i, instruction in enumerate(computation)}
    local = Names(computation.by_name)
    fused: list[Computation] = []
    stands_at: dict[str, list[Instruction]] = {}
    inside: set[str] = set()
    for group in groups:
        group.roots.sort(key=order.__getitem__)
        inside.update(group.paths)
        body, operands = _body(computation, group, order, names)
        fused.append(body)
        stands_at[group.roots[-1]] = _instructions(computation, group, body, operands, local)
    result: list[Instruction] = []
    for instruction in computation:
        if instruction.name in stands_at:
            result.extend(stands_at[instruction.name])
        elif instruction.name not in inside or instruction.name in bare:
            result.append(instruction)
    rebuilt = Computation(
        computation.name, stable_order(result), computation.root, computation.execution_thread, computation.span
    )
    return [*fused, rebuilt]


def _body(
    computation: Computation, group: Group, order: dict[str, int], names: Names
) -> tuple[Computation, tuple[str, ...]]:
    """The fused computation, and the names of the values it reads, in the order of its parameters."""
    members = sorted(group.paths, key=order.__getitem__)
    parameters: dict[str, Instruction] = {}
    inner: dict[str, Instruction] = {}
    for member in members:
        instruction = computation[member]
        for operand in instruction.operands:
            if operand in group.paths or operand in parameters or operand in inner:
                continue
            source = computation[operand]
            if _is_embedded(source):
                inner[operand] = _alone(source)
            else:
                shape = source.shape.without_layout()
                parameters[operand] = Instruction(operand, shape, Parameter(number=len(parameters)))
        inner[member] = _alone(instruction)
    instructions = [*parameters.values(), *inner.values()]
    root = group.roots[-1]
    if len(group.roots) > 1:
        shapes = Shape.tuple(tuple(computation[r].shape for r in group.roots))
        root = Names(i.name for i in instructions).fresh("results")
        instructions.append(Instruction(root, shapes, Tuple(), tuple(group.roots)))
    name = names.fresh(f"fused_{group.roots[-1]}")
    return Computation(name, tuple(instructions), root), tuple(parameters)


def _alone(instruction: Instruction) -> Instruction:
    """Without control edges: the fusion as a whole waits."""
    return instruction.replace(control_predecessors=()) if instruction.control_predecessors else instruction


def _is_embedded(source: Instruction) -> bool:
    if source.op.constant_array is None:
        return False
    assert isinstance(source.op, Constant)
    return source.shape.byte_size <= EMBEDDED_BYTES or source.op.splat is not None


def _instructions(
    computation: Computation, group: Group, body: Computation, operands: tuple[str, ...], local: Names
) -> list[Instruction]:
    """The fusion instruction and, for several results, the elements under the roots' names."""
    op = Fusion(kind="kLoop", calls=body.name)
    roots = [computation[root] for root in group.roots]
    before = tuple(dict.fromkeys(p for root in roots for p in root.control_predecessors))
    last = roots[-1]
    if len(roots) == 1:
        return [Instruction(last.name, last.shape, op, operands, before, metadata=last.metadata, span=last.span)]
    whole = Instruction(
        local.fresh(f"{last.name}.fusion"),
        body.root_instruction.shape,
        op,
        operands,
        before,
        metadata=last.metadata,
        span=last.span,
    )
    return [
        whole,
        *(
            Instruction(root.name, root.shape, GetTupleElement(index=i), (whole.name,), span=root.span)
            for i, root in enumerate(roots)
        ),
    ]
