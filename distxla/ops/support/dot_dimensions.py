"""The dimension numbers that dot, ragged-dot and scaled-dot share, and their constraints."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.attribute import attribute
from distxla.ir.element_type import ElementType
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.executable import ExecutableOp


@dataclass(frozen=True, slots=True)
class DotDimensions:
    """Batch and contracting dimensions of both operands, paired by position."""

    lhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    rhs_contracting: tuple[int, ...]

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        return tuple(d for d in range(rank) if d not in self.lhs_batch and d not in self.lhs_contracting)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        return tuple(d for d in range(rank) if d not in self.rhs_batch and d not in self.rhs_contracting)

    def check(self, op: Op, lhs: Shape, rhs: Shape) -> None:
        """Constraints C1 to C10 of StableHLO's dot_general."""
        for shape in (lhs, rhs):
            op.require(shape.is_array, "C5", f"multiplies arrays, not {shape}", at="operands")
        sides = (
            ("lhs", lhs, self.lhs_batch, self.lhs_contracting, ("C3", "C5", "C6")),
            ("rhs", rhs, self.rhs_batch, self.rhs_contracting, ("C4", "C7", "C8")),
        )
        op.require(
            len(self.lhs_batch) == len(self.rhs_batch), "C1", "different numbers of batch dimensions", at="operands"
        )
        op.require(
            len(self.lhs_contracting) == len(self.rhs_contracting),
            "C2",
            f"{len(self.lhs_contracting)} contracting dimensions left, {len(self.rhs_contracting)} right",
            at="lhs_contracting_dims",
        )
        for side, shape, batch, contracting, (unique, of_batch, of_contracting) in sides:
            both = batch + contracting
            op.require(
                len(set(both)) == len(both), unique, f"{list(both)} has a dimension twice", at=f"{side}_batch_dims"
            )
            for kind, dims, rule in (("batch", batch, of_batch), ("contracting", contracting, of_contracting)):
                for d in dims:
                    op.require(0 <= d < shape.rank, rule, f"{shape} has no dimension {d}", at=f"{side}_{kind}_dims")
        for rule, kind, left, right in (
            ("C9", "batch", self.lhs_batch, self.rhs_batch),
            ("C10", "contracting", self.lhs_contracting, self.rhs_contracting),
        ):
            for a, b in zip(left, right):
                op.require(
                    lhs.dims[a] == rhs.dims[b],
                    rule,
                    f"{kind} dimension {a} of {lhs} goes with dimension {b} of {rhs}",
                    at=f"lhs_{kind}_dims",
                )

    def result_dims(self, lhs: Shape, rhs: Shape) -> tuple[int, ...]:
        """Batch, then the left, then the right free dimensions."""
        return (
            *(lhs.dims[d] for d in self.lhs_batch),
            *(lhs.dims[d] for d in self.lhs_free(lhs.rank)),
            *(rhs.dims[d] for d in self.rhs_free(rhs.rank)),
        )


PRECISIONS = ("default", "high", "highest")
ALGORITHMS = (
    "unset",
    "dot_any_f8_any_f8_f32",
    "dot_any_f8_any_f8_f32_fast_accum",
    "dot_f16_f16_f16",
    "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16",
    "dot_bf16_bf16_f32",
    "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6",
    "dot_bf16_bf16_f32_x9",
    "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3",
    "dot_f32_f32_f32",
    "dot_f64_f64_f64",
)


def check_algorithm(op: Op, algorithm: str | None) -> None:
    """Rule `algorithm`: it is one that XLA knows; capitals are small letters to XLA's parser."""
    known = algorithm is None or algorithm.lower() in ALGORITHMS
    op.require(known, "algorithm", f"{algorithm} is none of {', '.join(ALGORITHMS)}", at="algorithm")


def check_precision(op: Op, rule: str, precision: Sequence[str], count: int = 2) -> None:
    """Require one precision an operand, where any is given: one that XLA knows."""
    unknown = next((word for word in precision if word.lower() not in PRECISIONS), None)
    op.require(unknown is None, rule, f"{unknown} is none of {', '.join(PRECISIONS)}", at="operand_precision")
    op.require(
        not precision or len(precision) == count,
        rule,
        f"operand_precision has {len(precision)} entries, not {count}",
        at="operand_precision",
    )


def product_type(lhs: Shape, rhs: Shape) -> ElementType:
    """The element type of a product where the text doesn't say: the wider operand's."""
    return lhs.dtype if lhs.dtype.bits >= rhs.dtype.bits else rhs.dtype


def check_result_type(op: Op, result: Shape, lhs: Shape, rhs: Shape, *, rule: str = "C13") -> None:
    """Require a result of the operands' kind; its width is free (XLA's preferred element type)."""
    numbers = ("pred", "signed", "unsigned")
    kinds = {s.dtype.kind if s.dtype.kind not in numbers else "integer" for s in (result, lhs, rhs)}
    op.require(
        len(kinds) == 1 or kinds == {"integer", "float"},
        rule,
        f"{lhs.dtype} times {rhs.dtype} can't give {result.dtype}",
        at="shape",
    )


@dataclass(frozen=True, eq=False, repr=False)
class DotOp(ExecutableOp):
    """What the opcodes with dot's dimension numbers have in common."""

    lhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())

    @property
    def dimensions(self) -> DotDimensions:
        return DotDimensions(
            self.lhs_batch_dims, self.lhs_contracting_dims, self.rhs_batch_dims, self.rhs_contracting_dims
        )
