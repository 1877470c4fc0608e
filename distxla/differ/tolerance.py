"""How far rounding alone may move a value: measured by runs in which arguments are moved and sums are split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from distxla.lazy_dataclass import dataclass
from distxla.ops.convolution import Convolution
from distxla.ops.dot import Dot
from distxla.ops.reduce import Reduce
from distxla.oracle.evaluation import InstructionEvaluation

Array = np.ndarray[Any, Any]

MOVES = 12.0  # how many times further than in the runs that measure it a value may be: other sums, more of them
UNITS = 6.0  # of the last place of the largest value, where the runs moved nothing
COARSE = 2.0**-5  # the last place of types of 8 bits is larger: their runs move values by much of themselves
COARSE_MOVES = 2.5
COARSE_UNITS = 2.0
MANY = 16  # elements from which on their differences together tell more than the largest one
SPREADS = 8.0
SPREAD_UNITS = 3.0


@dataclass(frozen=True)
class Allowed:
    """distance: between elements, of floats.  spread: the root of the mean of their squares, for many elements.

    elements: how many may differ, of integers and predicates.
    """

    distance: float
    elements: int = 0
    spread: float = float("inf")

    def fits(self, got: Array, wanted: Array, scale: float = 0.0) -> bool:
        """scale: the largest of the values that were added up to `got`. NaN fits NaN, an infinity the same one."""
        if not is_inexact(got.dtype):
            return int(np.count_nonzero(got != wanted)) <= self.elements
        a, b = real(got), real(wanted)
        last = unit(got.dtype)
        limit = max(self.distance, (COARSE_UNITS if last > COARSE else UNITS) * last * scale)
        with np.errstate(all="ignore"):
            apart = np.abs(a - b)
            near = apart <= limit
            if not near.all() and not (near | (a == b) | (np.isnan(a) & np.isnan(b))).all():
                return False
            if got.size < MANY:
                return True
            return root_mean_square(apart) <= max(self.spread, SPREAD_UNITS * last * scale)


def allowed(values: Sequence[Array], factor: float | None = None) -> Allowed:
    """values: the array of the plain run first, then of those in which rounding was moved.

    factor: relative to the largest value, in the place of what the runs say.
    """
    first, *moved = values
    if not is_inexact(first.dtype):
        return Allowed(0.0, max((4 * int(np.count_nonzero(other != first)) for other in moved), default=0))
    size = largest(first)
    if factor is not None:
        return Allowed(factor * size)
    a = real(first)
    with np.errstate(all="ignore"):
        distances = [real(other) - a for other in moved]
    distance = max(map(largest, distances), default=0.0)
    spread = max(map(root_mean_square, distances), default=0.0)
    last = unit(first.dtype)
    moves, units = (COARSE_MOVES, COARSE_UNITS) if last > COARSE else (MOVES, UNITS)
    share = moves / MOVES
    return Allowed(
        moves * distance + units * last * size,
        spread=share * SPREADS * spread + units / UNITS * SPREAD_UNITS * last * root_mean_square(a),
    )


def is_inexact(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or (dtype.kind == "V" and "int" not in dtype.name)


def real(array: Array) -> Array:
    """Of a type that NumPy computes in; complex numbers stay complex."""
    return (
        array
        if array.dtype.kind == "c" or (array.dtype.kind == "f" and array.dtype.itemsize >= 4)
        else array.astype("f")
    )


def largest(array: Array) -> float:
    """The largest finite magnitude."""
    if array.size == 0:
        return 0.0
    with np.errstate(all="ignore"):
        found = np.abs(real(array))
        top = float(found.max())
        return top if np.isfinite(top) else float(np.max(found, where=np.isfinite(found), initial=0.0))


def root_mean_square(array: Array) -> float:
    """Of the finite elements."""
    if array.size == 0:
        return 0.0
    flat = np.abs(real(array)).reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        total = float(np.dot(flat, flat))
    if not np.isfinite(total):
        flat = flat[np.isfinite(flat)]
        total = float(np.dot(flat, flat))
    return float(np.sqrt(total / flat.size)) if flat.size else 0.0


def unit(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number."""
    if dtype.kind == "c":
        dtype = np.empty(0, dtype).real.dtype
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


class Perturbation:
    """Moves a run's rounding: each float argument's element by a unit at random, numbers that are whole excepted, and
    each sum by adding its halves."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def argument(self, array: Array) -> Array:
        if array.dtype.kind == "c" or not is_inexact(array.dtype):
            return array
        values = real(array)
        step = self._random.integers(-1, 2, array.shape)
        with np.errstate(all="ignore"):
            exact = (values == np.rint(values)) | ~np.isfinite(values)
            moved = values * (1 + step * (unit(array.dtype) * 0.75)).astype(values.dtype)
        return np.where(exact, values, moved).astype(array.dtype)

    def value(self, run: InstructionEvaluation, operands: Sequence[Any], value: Any) -> Any:
        op = run.instruction.op
        if not isinstance(value, np.ndarray) or not is_inexact(value.dtype) or value.size == 0:
            return value
        halves = _halves(run, op, operands)
        if halves is None:
            return value
        with np.errstate(all="ignore"):
            first, second = (np.asarray(op.evaluate(run, *half)) for half in halves)  # type: ignore[attr-defined]
            return (first + second).astype(value.dtype)


def _halves(run: InstructionEvaluation, op: Any, operands: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """The operands of two instructions whose results' sum is the instruction's; None for other instructions."""
    if isinstance(op, Dot) and op.dimensions.lhs_contracting:
        left, right = op.dimensions.lhs_contracting[0], op.dimensions.rhs_contracting[0]
        return _cut(operands, {0: left, 1: right})
    if isinstance(op, Convolution) and op.feature_group_count == 1 and op.batch_group_count == 1:
        labels = op.dim_labels
        return _cut(operands, {0: labels.input_feature, 1: labels.kernel_input_feature})
    if isinstance(op, Reduce) and len(operands) == 2 and op.dimensions and _adds(run, op.to_apply):
        halves = _cut(operands, {0: op.dimensions[0]})
        if halves is not None:
            halves[1][1] = np.zeros_like(operands[1])
        return halves
    return None


def _cut(operands: Sequence[Array], dimensions: dict[int, int]) -> tuple[list[Any], list[Any]] | None:
    size = operands[0].shape[dimensions[0]]
    if size < 2:
        return None
    found: tuple[list[Any], list[Any]] = ([], [])
    for half, part in zip(found, (slice(None, size // 2), slice(size // 2, None)), strict=True):
        for k, operand in enumerate(operands):
            dimension = dimensions.get(k)
            half.append(operand if dimension is None else operand[(slice(None),) * dimension + (part,)])
    return found


def _adds(run: InstructionEvaluation, name: str) -> bool:
    """Whether a computation of two scalars is their sum."""
    computation = run.computation(name)
    root = computation.root_instruction
    return root.op.elements.is_sum and all(computation[o].op.role.is_parameter for o in root.operands)


__all__ = ["Allowed", "Perturbation", "allowed", "is_inexact", "largest", "real", "unit"]
