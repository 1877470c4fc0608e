"""Hypothesis strategies: shapes, literals and whole modules that are well-formed by construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distxla.ir.computation import Computation
from distxla.ir.element_type import DATA_TYPES, F32, PRED, ElementType
from distxla.ir.instruction import Instruction, Metadata
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.shape import Layout, ProgramShape, Shape
from distxla.ir.sharding import Sharding
from distxla.ops.support.registry import op_class

# The underscore keeps them apart from keywords and element types, which XLA does not take as names.
NAMES = st.from_regex(r"[a-z]_[a-zA-Z0-9_.\-]{0,6}", fullmatch=True)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ELEMENT_TYPES = st.sampled_from(DATA_TYPES)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Any order of the dimensions; sometimes tiles and a memory space."""
    order = tuple(draw(st.permutations(range(rank))))
    tiles = draw(st.lists(st.lists(st.sampled_from([1, 2, 8, 128]), min_size=1, max_size=2).map(tuple), max_size=2))
    return Layout(order, tuple(tiles), draw(st.sampled_from([0, 0, 1, 5])), draw(st.sampled_from([0, 0, 4])))


@st.composite
def array_shapes(
    draw: st.DrawFn, element_types: st.SearchStrategy[ElementType] = ELEMENT_TYPES, dynamic: bool = False
) -> Shape:
    """Rank 0 to 3, sizes 0 to 4; with a layout or without."""
    dims = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    flags = tuple(draw(st.booleans()) for _ in dims) if dynamic else ()
    layout = draw(st.none() | layouts(len(dims)))
    if layout == Layout(()):
        layout = None  # a scalar's empty layout has no text
    return Shape(draw(element_types), dims, flags, layout)


SHAPES: st.SearchStrategy[Shape] = st.recursive(
    array_shapes(dynamic=True) | st.just(Shape.token()),
    lambda inner: st.lists(inner, max_size=3).map(lambda elements: Shape.tuple(tuple(elements))),
    max_leaves=6,
)


@st.composite
def arrays(draw: st.DrawFn, shape: Shape) -> np.ndarray[Any, Any]:
    """Any bits that the element type has, NaNs with payloads included."""
    element_type = shape.dtype
    count = shape.size
    if element_type is PRED:
        values = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    elif element_type.is_integer:
        high = 2 ** (element_type.bits - element_type.is_signed) - 1
        low = -high - 1 if element_type.is_signed else 0
        numbers = draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
        values = np.array(numbers, np.uint64 if low == 0 else np.int64).astype(element_type.dtype)
    else:
        size = element_type.byte_size
        data = draw(st.binary(min_size=count * size, max_size=count * size))
        if element_type.name == "f4e2m1fn":
            data = bytes(byte & 0x0F for byte in data)
        values = np.frombuffer(data, element_type.dtype).copy()
    return values.reshape(shape.dims)


@st.composite
def literals(draw: st.DrawFn, shape: Shape) -> Literal:
    """A literal of a shape of arrays and tuples."""
    if shape.elements is not None:
        return Literal(shape.without_layout(), elements=tuple(draw(literals(element)) for element in shape.elements))
    return Literal(shape.without_layout(), draw(arrays(shape)))


class _Writer:
    """Appends instructions to a computation under construction."""

    def __init__(self, draw: st.DrawFn, computations: dict[str, Computation]) -> None:
        self.draw, self.computations = draw, computations
        self.instructions: dict[str, Instruction] = {}

    def name(self) -> str:
        return self.draw(NAMES.filter(lambda n: n not in self.instructions))

    def add(self, op: Op, operands: tuple[str, ...] = (), shape: Shape | None = None) -> str:
        """The result shape is inferred where none is given; annotations are drawn."""
        if shape is None:
            shape = op.infer_shape([self.instructions[o].shape for o in operands], self._program_shape)
            assert shape is not None
        fields: dict[str, Any] = {}
        if self.draw(st.integers(0, 3)) == 0:
            fields = self.draw(annotations(tuple(self.instructions)))
        name = self.name()
        self.instructions[name] = Instruction(name, shape, op, operands, **fields)
        return name

    def _program_shape(self, name: str) -> ProgramShape:
        return self.computations[name].program_shape

    def pick(self, accepts: Callable[[Shape], bool]) -> str | None:
        """The name of an instruction whose shape is accepted, None if there is none."""
        found = [i.name for i in self.instructions.values() if accepts(i.shape)]
        return self.draw(st.sampled_from(found)) if found else None


@st.composite
def annotations(draw: st.DrawFn, names: tuple[str, ...]) -> dict[str, Any]:
    """Fields that any instruction may have; names: those that may be control predecessors."""
    fields: dict[str, Any] = {}
    if names and draw(st.booleans()):
        fields["control_predecessors"] = (draw(st.sampled_from(names)),)
    if draw(st.booleans()):
        keys = draw(st.lists(st.sampled_from(["op_type", "op_name", "source_file"]), unique=True, max_size=3))
        values = [(key, draw(STRINGS)) for key in keys]
        fields["metadata"] = Metadata((*values, ("source_line", draw(st.integers(0, 1000)))))
    if draw(st.booleans()):
        pairs = draw(st.dictionaries(NAMES, STRINGS | st.just('{"a": [1, "}"]}'), max_size=3))
        fields["frontend_attributes"] = tuple(pairs.items())
    if draw(st.booleans()):
        fields["backend_config"] = draw(STRINGS | st.just('{"key":{"list":[1,2]}}'))
    if draw(st.booleans()):
        fields["sharding"] = Sharding("maximal", "{maximal device=3}", device=3)
    return fields


@st.composite
def replica_groups(draw: st.DrawFn) -> ReplicaGroups:
    """Empty, listed or iota groups of up to 8 ids."""
    kind = draw(st.sampled_from(["empty", "list", "iota"]))
    if kind == "empty":
        return ReplicaGroups()
    if kind == "list":
        ids = draw(st.permutations(range(4)))
        return ReplicaGroups((tuple(ids[:2]), tuple(ids[2:])))
    permutation = draw(st.sampled_from([(), (1, 0, 2), (2, 0, 1)]))
    return ReplicaGroups.from_iota((2, 4), (2, 2, 2), permutation)


def _op(opcode: str, **attributes: Any) -> Op:
    return op_class(opcode)(**attributes)


def _scalar_computation(opcode: str, element_type: ElementType) -> Computation:
    scalar = Shape(element_type)
    parameters = tuple(Instruction(f"p{k}", scalar, _op("parameter", number=k)) for k in range(2))
    root = Instruction("r", scalar, _op(opcode), ("p0", "p1"))
    return Computation(f"{opcode}_{element_type}", (*parameters, root), "r")


def _unary(writer: _Writer) -> None:
    if name := writer.pick(lambda s: s.is_array and s.dtype.is_float and not s.dynamic):
        opcode = writer.draw(st.sampled_from(["negate", "abs", "tanh", "exponential", "floor", "copy"]))
        writer.add(_op(opcode), (name,))


def _binary(writer: _Writer) -> None:
    if name := writer.pick(lambda s: s.is_array and s.dtype.is_float and not s.dynamic):
        opcode = writer.draw(st.sampled_from(["add", "multiply", "maximum", "divide"]))
        writer.add(_op(opcode), (name, name))


def _compare(writer: _Writer) -> None:
    if name := writer.pick(lambda s: s.is_array and s.dtype is F32 and not s.dynamic):
        direction = writer.draw(st.sampled_from(["EQ", "NE", "LT", "GE"]))
        comparison = writer.draw(st.sampled_from([None, "FLOAT", "TOTALORDER"]))
        writer.add(_op("compare", direction=direction, comparison=comparison), (name, name))


def _constant(writer: _Writer) -> None:
    shape = writer.draw(array_shapes())
    writer.add(_op("constant", literal=writer.draw(literals(shape))), shape=shape)


def _transpose(writer: _Writer) -> None:
    if name := writer.pick(lambda s: s.is_array and not s.dynamic):
        rank = writer.instructions[name].shape.rank
        writer.add(_op("transpose", dimensions=tuple(writer.draw(st.permutations(range(rank))))), (name,))


def _tuple(writer: _Writer) -> None:
    names = writer.draw(st.lists(st.sampled_from(list(writer.instructions)), min_size=1, max_size=7))
    made = writer.add(_op("tuple"), tuple(names))
    writer.add(_op("get-tuple-element", index=writer.draw(st.integers(0, len(names) - 1))), (made,))


def _reduce(writer: _Writer) -> None:
    if name := writer.pick(lambda s: s.is_array and s.dtype is F32 and not s.dynamic):
        computation = _scalar_computation(writer.draw(st.sampled_from(["add", "maximum"])), F32)
        writer.computations.setdefault(computation.name, computation)
        zero = writer.add(_op("constant", literal=Literal.of(0, Shape(F32))), shape=Shape(F32))
        rank = writer.instructions[name].shape.rank
        dimensions = writer.draw(st.sets(st.integers(0, rank - 1))) if rank else set()
        writer.add(_op("reduce", dimensions=tuple(sorted(dimensions)), to_apply=computation.name), (name, zero))


def _all_reduce(writer: _Writer) -> None:
    if name := writer.pick(lambda s: s.is_array and s.dtype is F32 and not s.dynamic):
        computation = _scalar_computation("add", F32)
        writer.computations.setdefault(computation.name, computation)
        channel = writer.draw(st.none() | st.integers(0, 9))
        op = _op(
            "all-reduce", replica_groups=writer.draw(replica_groups()), channel_id=channel, to_apply=computation.name
        )
        writer.add(op, (name,), writer.instructions[name].shape)


_STEPS = (_unary, _binary, _compare, _constant, _transpose, _tuple, _reduce, _all_reduce)


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """A module with an entry computation of up to a dozen instructions and the computations it calls."""
    computations: dict[str, Computation] = {}
    writer = _Writer(draw, computations)
    for number in range(draw(st.integers(1, 3))):
        shape = draw(SHAPES if number else array_shapes(st.just(F32)))
        writer.add(_op("parameter", number=number), shape=shape)
    for step in draw(st.lists(st.sampled_from(_STEPS), max_size=8)):
        step(writer)
    name = draw(NAMES.filter(lambda n: n not in computations))
    root = draw(st.sampled_from(list(writer.instructions)))
    entry = Computation(name, tuple(writer.instructions.values()), root)
    return Module(
        name=draw(NAMES),
        computations=(*computations.values(), entry),
        entry=name,
        is_scheduled=draw(st.booleans()),
        replica_count=draw(st.none() | st.integers(1, 8)),
        num_partitions=draw(st.none() | st.integers(1, 8)),
        entry_layout=draw(st.none() | st.just(entry.program_shape)),
    )
