"""The common parts of collectives with replica groups: group modes, group checks, the reduction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.counts import Counts
from distxla.ir.mixed_precision import Computed, in_type_of
from distxla.ir.op import Op
from distxla.ir.op_traits import RoundRules
from distxla.ir.replica_groups import GroupMode, ReplicaGroups, device_groups
from distxla.ir.shape import Called, Shape
from distxla.ir.unwritten import empty
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import CollectiveOp

ALL_DEVICES = ReplicaGroups()

# In which order members' elements are combined; x0 .. x(n-1) in group order, f the computation.
RANK = "rank"  # f(.. f(f(x0, x1), x2) .., x(n-1))
TREE = "tree"  # neighbours by position, f(x0, x1), f(x2, x3) .., then those results; an odd last one waits a level
RING = "ring"  # in the chunk of member c: f(.. f(x(c+1), x(c+2)) .., xc), going round, as a ring reduces
REDUCTION_ORDERS = (RANK, TREE, RING)


@dataclass(frozen=True, eq=False, repr=False)
class GroupedCollective(CollectiveOp):
    """A collective whose members are named by `replica_groups`.

    Errors (for every subclass, with its own opcode in front):
        C1  an id is twice in the groups, or negative.
        C2  groups of different sizes (all-reduce alone may have them).
        C3  `use_global_device_ids` without `channel_id`.
        C4  `use_global_device_ids` with empty groups.
        C5  the groups do not hold every id of the run exactly once (known when replicas and partitions are);
            collective-broadcast may leave ids out.
        C6  not the number of operands that the group size or the opcode asks for.
        C7  an operand or result that is no array.
    """

    round: ClassVar[RoundRules] = RoundRules(has_groups=True)

    uniform_groups: ClassVar[bool] = True

    channel_id: int | None = attribute("int", default=None)
    replica_groups: ReplicaGroups = attribute("replica_groups", default=ALL_DEVICES)
    constrain_layout: bool = attribute("bool", default=False)

    @property
    def channel(self) -> int | None:
        return self.channel_id

    @property
    def reduction(self) -> str | None:
        """The computation that folds the members' elements; None where elements are only moved."""
        return None

    @property
    def order(self) -> str:
        """In which of REDUCTION_ORDERS they are folded."""
        return RANK

    @property
    def global_ids(self) -> bool:
        """Whether the ids are flattened device ids; only three opcodes can say so."""
        return False

    @property
    def group_mode(self) -> GroupMode:
        return GroupMode.CROSS_REPLICA if self.channel_id is None else GroupMode.CROSS_PARTITION

    def device_groups(self, counts: Counts) -> tuple[tuple[int, ...], ...]:
        """Ordered flattened device ids of every group; RuleViolation C1 to C5 where the groups don't fit the run.

        A device whose id no group holds is a group of its own, behind the others; see `silent_devices`.
        """
        found = self._listed_groups(counts)
        return (*found, *((device,) for device in _missing(found, counts.devices)))

    def silent_devices(self, counts: Counts) -> tuple[int, ...]:
        """Flattened ids of the devices in no group: they receive nothing, and get zeros."""
        return _missing(self._listed_groups(counts), counts.devices)

    def _listed_groups(self, counts: Counts) -> tuple[tuple[int, ...], ...]:
        self.check_groups()
        mode = self.group_mode
        dimension_size = {
            GroupMode.CROSS_REPLICA: counts.replicas,
            GroupMode.CROSS_PARTITION: counts.partitions,
            GroupMode.CROSS_REPLICA_AND_PARTITION: counts.replicas,
            GroupMode.FLATTENED_ID: counts.devices,
        }[mode]
        ids = self.replica_groups.ids
        fits = sorted(ids) == list(range(dimension_size)) if self.covers_all else max(ids, default=0) < dimension_size
        if ids and not fits:
            text = f"the groups must hold {'each id' if self.covers_all else 'ids'} of 0..{dimension_size - 1} once "
            text += f"({mode.value} groups of {counts}), they hold {sorted(ids)}"
            self.require(False, "C5", text, at="replica_groups")
        return device_groups(self.replica_groups, mode, counts)

    def check_groups(self) -> None:
        """C1 to C4: checks that don't depend on the run."""
        groups, ids = self.replica_groups.groups, self.replica_groups.ids
        if len(set(ids)) < len(ids) or min(ids, default=0) < 0:
            text = f"an id of replica_groups is negative or is given twice: {list(map(list, groups))}"
            self.require(False, "C1", text, at="replica_groups")
        sizes = {len(group) for group in groups}
        self.require(
            0 not in sizes and (len(sizes) < 2 or not self.uniform_groups),
            "C2",
            f"groups of sizes {sorted(sizes)}: all must have the same" if self.uniform_groups else "an empty group",
            at="replica_groups",
        )
        if self.global_ids:
            self.require(
                self.channel_id is not None,
                "C3",
                "use_global_device_ids needs a channel_id",
                at="use_global_device_ids",
            )
            self.require(groups, "C4", "use_global_device_ids needs groups that are written out", at="replica_groups")

    def group_size(self) -> int | None:
        """Members of a group as far as the text alone tells: None for empty or unequal groups and for groups of
        replicas which all partitions of each join."""
        sizes = {len(group) for group in self.replica_groups.groups}
        if len(sizes) != 1 or self.group_mode is GroupMode.CROSS_REPLICA_AND_PARTITION:
            return None
        return sizes.pop()

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape | None:
        self.check_groups()
        self.require(operands, "C6", "no operand", at="operands")
        for i, operand in enumerate(operands):
            self.require(operand.is_array, "C7", f"operand {i} is {operand}, not an array", at="operands")
        self.check_called(operands, called)
        size = self.group_size()
        return None if size is None else self.result_shape(operands, size)

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        """Where the text does not tell the group size, the stated result must be right for some size."""
        inferred = self.infer_shape(operands, called)
        if inferred is None:
            size = self.size_from_result(shape, operands)
            self.require(size is not None, "shape", f"no group size gives {shape} from {_list(operands)}", at="shape")
            inferred = self.result_shape(operands, size or 1)
        self.require(
            inferred.compatible(shape), "shape", f"the result is {inferred}, the text says {shape}", at="shape"
        )

    def check_size(self, shape: Shape, operands: Sequence[Shape], size: int) -> None:
        """RuleViolation where the stated result does not fit groups of `size`."""
        result = self.result_shape(operands, size)
        self.require(
            result.compatible(shape),
            "shape",
            f"with groups of {size} the result is {result}, the text says {shape}",
            at="shape",
        )

    def check_called(self, operands: Sequence[Shape], called: Called) -> None:
        """The constraints on called computations."""

    @abstractmethod
    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        """The movements of elements within a group of `size` members, which a transport carries out."""

    @abstractmethod
    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        """The result from array operands for groups of `size`, after checking the opcode's own constraints."""

    def size_from_result(self, shape: Shape, operands: Sequence[Shape]) -> int | None:
        """A group size for which the result could be `shape`; None if there is none."""
        return 1


@dataclass(frozen=True, eq=False, repr=False)
class GlobalIdsCollective(GroupedCollective):
    """all-reduce, all-gather, reduce-scatter: the three that may use flattened ids, and whose channel_id without
    them makes every partition of a listed replica a member (replicas outer, partitions inner)."""

    @property
    def group_mode(self) -> GroupMode:
        if self.channel_id is None:
            return GroupMode.CROSS_REPLICA
        return GroupMode.FLATTENED_ID if self.global_ids else GroupMode.CROSS_REPLICA_AND_PARTITION


@dataclass(frozen=True, eq=False, repr=False)
class ReducingCollective(GlobalIdsCollective):
    """all-reduce, all-reduce-start and reduce-scatter: members' elements are combined by a computation of scalars.

    mode: the group mode as XLA wrote it for a while; it reads it still, and goes by channel_id and
    use_global_device_ids all the same. So it is checked and not kept: rule C12 where it contradicts them.  reduction:
    `to_apply`, which subclasses declare, since attributes are printed in their order.
    """

    mode: GroupMode | None = attribute("group_mode", default=None)
    use_global_device_ids: bool = attribute("bool", default=False)

    @property
    def global_ids(self) -> bool:
        return self.use_global_device_ids

    @property
    @abstractmethod
    def reduction(self) -> str: ...

    def check_called(self, operands: Sequence[Shape], called: Called) -> None:
        """C8: to_apply combines two scalars of one type into one. C11: the order is a known one.

        XLA looks at no more: where the operands are of another kind than the scalars (integers and a computation of
        floats), its backends take the kind of reduction, add or maximum, from the computation and the type from the
        operands; see explicit_precision.py. Floats of another precision are converted (mixed_precision.py).
        """
        self.require(
            self.order in REDUCTION_ORDERS,
            "C11",
            f"reduction_order={self.order} is none of {', '.join(REDUCTION_ORDERS)}",
            at="reduction_order",
        )
        program = called(self.reduction)
        scalar = program.parameters[0] if len(program.parameters) == 2 else None
        is_reduction = scalar is not None and scalar.is_array and scalar.rank == 0
        self.require(
            is_reduction and all(s.compatible(program.parameters[0]) for s in (*program.parameters, program.result)),
            "C8",
            f"to_apply={self.reduction} must be (T[], T[]) -> T[]; "
            f"it is ({_list(program.parameters)}) -> {program.result}",
            at="to_apply",
        )
        for i, operand in enumerate(operands):
            self.require(
                operand.dtype is program.result.dtype or not (operand.dtype.is_float and program.result.dtype.is_float),
                "C8",
                f"to_apply={self.reduction} reduces {program.result.dtype}, operand {i} is {operand}",
                at="to_apply",
            )

    def computed_in(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Computed | None:
        return in_type_of(called(self.reduction).result, shape, operands)

    def __post_init__(self) -> None:
        if self.mode is None:
            return
        meant = self.group_mode
        self.require(
            self.mode is meant,
            "C12",
            f"mode is {self.mode.value}; XLA goes by channel_id and use_global_device_ids, which say {meant.value}",
            at="mode",
        )
        object.__setattr__(self, "mode", None)


def _missing(groups: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    listed = {device for group in groups for device in group}
    return tuple(device for device in range(count) if device not in listed)


def synchronous(op: CollectiveOp, op_class: type[CollectiveOp]) -> CollectiveOp:
    """The op of class `op_class` with the attributes of `op`, which begins it."""
    return op_class(**{spec.field: getattr(op, spec.field) for spec in op_class.attributes()})


def reduce_in_order(
    run: Evaluation,
    to_apply: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    order: str = RANK,
    chunks: np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, Any]:
    """The members' arrays, in group order, combined element by element in one of REDUCTION_ORDERS.

    chunks: for `ring`, of which member's chunk each element is. There is no identity in it, so -0.0 + -0.0 stays -0.0
    and one member's operand comes back bit for bit.
    """
    if order == TREE:
        while len(arrays) > 1:
            pairs = [arrays[i : i + 2] for i in range(0, len(arrays), 2)]
            arrays = [run.map(to_apply, *pair)[0] if len(pair) == 2 else pair[0] for pair in pairs]
        return arrays[0]
    if order == RING and chunks is not None:
        result = empty(arrays[0].shape, arrays[0].dtype)
        for chunk in range(len(arrays)):
            mine = chunks == chunk
            first = chunk + 1
            result[mine] = reduce_in_order(run, to_apply, [array[mine] for array in (*arrays[first:], *arrays[:first])])
        return result
    reduced, *others = arrays
    for other in others:
        reduced = run.map(to_apply, reduced, other)[0]
    return reduced


def ring_chunks(bounds: Sequence[int], dimension_sizes: Sequence[int], members: int) -> np.ndarray[Any, Any]:
    """Of which member's chunk each element of an all-reduce's operand is: of E elements in row-major order the first
    ceil(E / members) are member 0's, and so on.

    bounds: the stated dimension sizes, by which chunks go.  dimension_sizes: those at run time.
    """
    count = prod(bounds)
    each = max(1, -(-count // members))
    whole = (np.arange(count) // each).reshape(bounds)
    return np.asarray(whole[tuple(slice(dimension_size) for dimension_size in dimension_sizes)])


def require_one_dimension(op: Op, rule: str, dimensions: Sequence[int], operands: Sequence[Shape]) -> None:
    """Require `dimensions` to name one dimension, which every operand has."""
    rank = min(operand.rank for operand in operands)
    op.require(
        len(dimensions) == 1 and 0 <= dimensions[0] < rank,
        rule,
        f"dimensions={list(dimensions)} must be one dimension below {rank}",
        at="dimensions",
    )


def ratio_along(larger: Shape, smaller: Shape, dimension: int) -> int | None:
    """How many times `smaller` goes into `larger` along the dimension; None if it does not."""
    if not (larger.is_array and smaller.is_array) or larger.rank != smaller.rank:
        return None
    whole, part = larger.dims[dimension], smaller.dims[dimension]
    if part == 0:
        return 1 if whole == 0 else None
    return whole // part if whole and whole % part == 0 else None


def _list(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))


__all__ = [
    "GlobalIdsCollective",
    "GroupedCollective",
    "ReducingCollective",
    "ratio_along",
    "reduce_in_order",
    "require_one_dimension",
]
