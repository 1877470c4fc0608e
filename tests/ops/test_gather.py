"""`gather`: start vectors that have components for batching dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.program_case import compiled, evaluated, one_instruction


def _gather(starts: str, index_map: str) -> str:
    return one_instruction(
        f"f32[3,2] gather(@), offset_dims={{}}, collapsed_slice_dims={{1}}, start_index_map={index_map}, "
        "operand_batching_dims={0,2}, start_indices_batching_dims={1,0}, index_vector_dim=2, slice_sizes={1,1,1}",
        ["f32[2,10,3]", starts],
    )


@pytest.mark.parametrize("executor", [evaluated, compiled])
@pytest.mark.parametrize("index_map", [(0, 1, 2), (2, 1), (1, 0)])
def test_a_component_for_a_batching_dimension_counts_for_nothing(
    index_map: tuple[int, ...], executor: Callable[..., list[Any]]
) -> None:
    generator = np.random.default_rng(len(index_map))
    operand = generator.normal(size=(2, 10, 3)).astype(np.float32)
    starts = generator.integers(-3, 13, size=(3, 2, len(index_map))).astype(np.int32)
    text = _gather(f"s32[3,2,{len(index_map)}]", "{" + ",".join(map(str, index_map)) + "}")
    (got,) = executor(text, operand, starts)
    component = starts[:, :, index_map.index(1)]
    wanted = [[operand[j, np.clip(component[i, j], 0, 9), i] for j in range(2)] for i in range(3)]
    np.testing.assert_array_equal(got, np.array(wanted))
