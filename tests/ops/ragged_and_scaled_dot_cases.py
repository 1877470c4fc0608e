"""What test_ragged_and_scaled_dot.py shares with other tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distxla.ir.element_type import element_type
from tests.ops.program_case import Array, one_instruction


@dataclass(frozen=True)
class Ragged:
    """dims: (contracting, batch) dimensions of lhs and of rhs.  ragged, group: dimensions of lhs and rhs."""

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    sizes: Any
    dims: tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]
    ragged: int
    group: tuple[int, ...] = ()

    def text(self, element: str, result: tuple[int, ...]) -> str:
        (left, right), (left_batch, right_batch) = self.dims
        numbers = {
            "lhs_batch_dims": left_batch,
            "rhs_batch_dims": right_batch,
            "lhs_contracting_dims": left,
            "rhs_contracting_dims": right,
            "lhs_ragged_dims": (self.ragged,),
            "rhs_group_dims": self.group,
        }
        attributes = ", ".join(f"{k}={{{','.join(map(str, v))}}}" for k, v in numbers.items() if v)
        operands = [_shape(element, self.lhs), _shape(element, self.rhs), _shape("s32", np.shape(self.sizes))]
        return one_instruction(f"{_shape(element, result)} ragged-dot(@), {attributes}", operands)

    def arguments(self, element: str) -> list[Array]:
        generator, dtype = np.random.default_rng(len(self.lhs)), element_type(element).dtype
        arrays = ((generator.standard_normal(dims) * 3).astype(dtype) for dims in (self.lhs, self.rhs))
        return [*arrays, np.array(self.sizes, np.int32)]


def _shape(element: str, dims: Sequence[int]) -> str:
    return f"{element}[{','.join(map(str, dims))}]"


ROWS = (((1,), (1,)), ((), ()))

FREE = [
    Ragged((11, 5), (3, 5, 7), [4, 4, 3], ROWS, 0, (0,)),
    Ragged((300, 5), (4, 5, 7), [100, 28, 0, 172], ROWS, 0, (0,)),
    Ragged((300, 5), (4, 5, 7), [128, 128, 0, 20], ROWS, 0, (0,)),  # the last rows belong to nobody
    Ragged((300, 5), (3, 5, 7), [500, 1, 1], ROWS, 0, (0,)),
    Ragged((5, 300), (7, 6, 5), [0, 0, 100, 200, 0, 0], (((0,), (2,)), ((), ())), 1, (1,)),
    Ragged((3, 300, 5), (3, 4, 5, 7), [100, 28, 0, 172], (((2,), (2,)), ((0,), (0,))), 1, (1,)),
    Ragged((2, 30, 5), (2, 4, 5, 7), [[10, 2, 0, 18], [0, 0, 30, 0]], (((2,), (2,)), ((0,), (0,))), 1, (1,)),
    Ragged((2, 30, 5), (4, 5, 7), [[10, 2, 0, 18], [0, 0, 5, 0]], (((2,), (1,)), ((), ())), 1, (0,)),
    Ragged((0, 5), (3, 5, 7), [0, 0, 0], ROWS, 0, (0,)),
    Ragged((6, 0), (3, 0, 7), [2, 2, 2], ROWS, 0, (0,)),
]

CONTRACTING = [
    Ragged((11, 5), (5, 7), [2, 3], (((1,), (0,)), ((), ())), 1),
    Ragged((11, 300), (300, 7), [2, 200, 90], (((1,), (0,)), ((), ())), 1),
    Ragged((3, 11, 30), (3, 30, 7), [[2, 20, 8], [0, 0, 30], [30, 0, 0]], (((2,), (1,)), ((0,), (0,))), 2),
    Ragged((3, 11, 30, 2), (3, 2, 30, 7), [2, 20, 8], (((2, 3), (2, 1)), ((0,), (0,))), 2),
    Ragged((2, 4, 2, 9), (2, 9, 2, 5), [[[1, 2], [3, 4]], [[5, 4], [9, 0]]], (((2, 3), (2, 1)), ((0,), (0,))), 3),
]
