"""One instruction as a test case: a module around it, arguments that reach its corners, and the ways to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType, element_type
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.parameter import Parameter
from distxla.ops.support.conversion import integer_range
from distxla.ops.support.registry import op_class
from distxla.ops.tuple import Tuple
from distxla.oracle.lockstep import run_reference

Array = np.ndarray[Any, Any]

# Values at which the semantics turn; each is converted to the element type, what does not fit becomes something else.
FLOAT_CORNERS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, 3.7, -3.7, 1e-3, -1e-3, 10.0, -10.0, 88.0, -88.0,
    1e-30, 1e30, -1e30, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


def array(name: str, *dims: int) -> Shape:
    """`array("f32", 2, 3)` is f32[2,3]."""
    return Shape(element_type(name), dims)


def corners(element: ElementType) -> Array:
    """The values at which the semantics of `element` turn."""
    if element.kind == "pred":
        return np.array([False, True])
    if element.is_integer:
        low, high = integer_range(element)
        wanted = {
            0,
            1,
            2,
            3,
            5,
            7,
            element.bits - 1,
            element.bits,
            element.bits + 1,
            high,
            high - 1,
            high // 2,
            low,
            low + 1,
        }
        wanted |= {-1, -2, -3, -7} if element.is_signed else set()
        fitting = sorted(v for v in wanted if low <= v <= high)
        return np.array(fitting, np.int64 if element.is_signed else np.uint64).astype(element.dtype)
    with np.errstate(all="ignore"):
        floats = np.array(FLOAT_CORNERS, np.float64)
        if element.is_complex:
            finite = floats[np.isfinite(floats) & (np.abs(floats) < 20)]
            real, imaginary = np.meshgrid(finite[:12], finite[-10:])
            return (real + 1j * imaginary).ravel().astype(element.dtype)
        return floats.astype(element.dtype)


def sample(shape: Shape, seed: int) -> Array:
    """Deterministic values: the corners in random places between ordinary numbers of either sign."""
    generator = np.random.default_rng([seed, shape.size, shape.dtype.bits])
    element, special = shape.dtype, corners(shape.dtype)
    chosen = special[generator.integers(0, len(special), shape.size)] if len(special) else special
    if element.is_float or element.is_complex:
        ordinary = generator.uniform(-4, 4, shape.size).astype(element.real_part.dtype).astype(element.dtype)
        chosen = np.where(generator.random(shape.size) < 0.5, chosen, ordinary)
    return np.asarray(chosen.astype(element.dtype).reshape(shape.dims))


@dataclass(frozen=True)
class Case:
    """One instruction on operands that are parameters.

    attributes: the op's fields.  result: where the shape can't be inferred.  arguments: instead of sampled ones.
    ulps: how far compiled code may be from `evaluate`, None for the table of tests/tolerances.py.
    """

    opcode: str
    operands: tuple[Shape, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    result: Shape | None = None
    arguments: tuple[Array, ...] | None = None
    ulps: int | None = None

    def __str__(self) -> str:
        attributes = " ".join(f"{k}={v}" for k, v in self.attributes.items())
        result = f"->{self.result}" if self.result else ""
        return f"{self.opcode}({','.join(map(str, self.operands))}){result} {attributes}".strip().replace(" ", "_")[
            :120
        ]

    @property
    def op(self) -> Op:
        return op_class(self.opcode)(**self.attributes)

    @property
    def shape(self) -> Shape:
        """The result's shape, as stated or inferred; the instruction is verified."""
        shape = self.result or self.op.infer_shape(self.operands, _no_computation)
        assert shape is not None, "the case must state the result's shape"
        self.op.verify(shape, self.operands, _no_computation)
        return shape

    def module(self) -> Module:
        """The one instruction as the root of an entry whose parameters are the operands."""
        names = tuple(f"p{k}" for k in range(len(self.operands)))
        parameters = [
            Instruction(name, shape, Parameter(number=k))
            for k, (name, shape) in enumerate(zip(names, self.operands, strict=True))
        ]
        root = Instruction("result", self.shape, self.op, names)
        return Module("case", (Computation("main", (*parameters, root), "result"),), "main")

    def values(self) -> list[Array]:
        """The arguments, one array a leaf of the operands."""
        if self.arguments is not None:
            return list(self.arguments)
        leaves = [leaf for operand in self.operands for leaf in operand.leaves()]
        return [sample(leaf, seed) for seed, leaf in enumerate(leaves)]

    def evaluated(self) -> list[Array | None]:
        """The result's leaves by the op's own `evaluate`."""
        return run_reference(self.module(), [self.values()], Counts(1, 1))[0]


def _no_computation(name: str) -> Any:
    raise KeyError(name)


def joined(cases: Sequence[Case]) -> Module:
    """One module whose result is the tuple of all cases' results; its parameters are all cases' operands in order."""
    parameters: list[Instruction] = []
    roots: list[Instruction] = []
    for k, case in enumerate(cases):
        names = []
        for shape in case.operands:
            number = len(parameters)
            names.append(f"p{number}")
            parameters.append(Instruction(names[-1], shape, Parameter(number=number)))
        roots.append(Instruction(f"r{k}", case.shape, case.op, tuple(names)))
    result = Instruction("result", Shape.tuple([r.shape for r in roots]), Tuple(), tuple(r.name for r in roots))
    return Module("cases", (Computation("main", (*parameters, *roots, result), "result"),), "main")
