"""Examples: shapes, slices, padding, constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.builder.example import Table, f32, s32

EXAMPLES = Table()
B = Any  # the builder: these programs are written as a user would

V = f32(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ]
)
IN_ORDER = [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]
OUT_OF_ORDER = [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47]
MATRIX = f32([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
LINE = f32([0, 1, 2, 3, 4])
SMALL = s32([[1, 2, 3], [4, 5, 6]])


@EXAMPLES.add("Broadcast", [f32(2.0)], np.full((2, 3), 2, np.float32))
def broadcast_scalar(b: B, x: B) -> B:
    return b.broadcast(x, [2, 3])


@EXAMPLES.add("Broadcast", [s32([1, 2])], s32([[1, 2], [1, 2], [1, 2]]))
def broadcast_on_the_left(b: B, x: B) -> B:
    return b.broadcast(operand=x, broadcast_sizes=[3])


@EXAMPLES.add("BroadcastInDim", [s32([[1], [2]])], s32([[[1] * 3] * 4, [[2] * 3] * 4]))
def broadcast_in_dim_with_size_one(b: B, x: B) -> B:
    return b.broadcast_in_dim(x, out_dim_size=[2, 4, 3], broadcast_dimensions=[0, 2])


@EXAMPLES.add("BroadcastInDim", [s32([1, 2, 3])], s32([[1, 1], [2, 2], [3, 3]]))
def broadcast_in_dim_of_a_vector(b: B, x: B) -> B:
    return b.broadcast_in_dim(x, [3, 2], [0])


@EXAMPLES.add("Collapse", [V], f32(IN_ORDER))
def collapse_all(b: B, v: B) -> B:
    return b.collapse(v, [0, 1, 2])


@EXAMPLES.add("Collapse", [V], f32(IN_ORDER).reshape(8, 3))
def collapse_lower(b: B, v: B) -> B:
    return b.collapse(v, [0, 1])


@EXAMPLES.add("Collapse", [V], f32(IN_ORDER).reshape(4, 6))
def collapse_higher(b: B, v: B) -> B:
    return b.collapse(v, [1, 2])


@EXAMPLES.add("Concatenate", [s32([2, 3]), s32([4, 5]), s32([6, 7])], s32([2, 3, 4, 5, 6, 7]))
def concatenate_vectors(b: B, x: B, y: B, z: B) -> B:
    return b.concatenate([x, y, z], 0)


@EXAMPLES.add("Concatenate", [s32([[1, 2], [3, 4], [5, 6]]), s32([[7, 8]])], s32([[1, 2], [3, 4], [5, 6], [7, 8]]))
def concat_matrices(b: B, x: B, y: B) -> B:
    return b.concat_in_dim([x, y], dimension=0)


@EXAMPLES.add("ConvertElementType", [s32([0, 1, 2])], f32([0, 1, 2]))
def convert_to_f32(b: B, a: B) -> B:
    return b.convert_element_type(a, "f32")


@EXAMPLES.add("BitcastConvertType", [f32(np.arange(10))], f32(np.arange(10)).view(np.float16).reshape(10, 2))
def bitcast_to_narrower(b: B, x: B) -> B:
    return b.bitcast_convert_type(x, new_element_type="f16")


@EXAMPLES.add("BitcastConvertType", [f32(3.5)], f32([3.5]).view(np.float16))
def bitcast_of_a_scalar(b: B, x: B) -> B:
    return b.bitcast_convert_type(x, np.float16)


@EXAMPLES.add("BitcastConvertType", [f32(np.arange(10)).view(np.float16).reshape(10, 2)], f32(np.arange(10)))
def bitcast_to_wider(b: B, x: B) -> B:
    return b.bitcast_convert_type(x, "f32")


@EXAMPLES.add("BitcastConvertType", [s32([0x3F800000, 0x40000000])], f32([1, 2]))
def bitcast_of_equal_width(b: B, x: B) -> B:
    return b.bitcast_convert_type(x, "f32")


@EXAMPLES.add("Iota", [], s32([[i] * 8 for i in range(4)]))
def iota_of_rows(b: B) -> B:
    return b.iota("s32[4,8]", 0)


@EXAMPLES.add("Iota", [], s32([list(range(8))] * 4))
def iota_of_columns(b: B) -> B:
    return b.iota(shape=("s32", (4, 8)), iota_dimension=1)


@EXAMPLES.add("Iota", [], f32([0, 1, 2, 3, 4]))
def iota_of_floats(b: B) -> B:
    return b.iota("f32[5]", 0)


@EXAMPLES.add("Pad", [SMALL], s32([[0, 1, 2, 3, 0, 0], [0, 4, 5, 6, 0, 0], [0] * 6]))
def pad_edges(b: B, x: B) -> B:
    return b.pad(x, 0, [(0, 1, 0), (1, 2, 0)])


@EXAMPLES.add("Pad", [SMALL], s32([[1, 0, 2, 0, 3], [0] * 5, [4, 0, 5, 0, 6]]))
def pad_between(b: B, x: B) -> B:
    return b.pad(x, b.constant(0), padding_config=[(0, 0, 1), (0, 0, 1)])


@EXAMPLES.add("Pad", [SMALL], s32([[0, 1, 0, 2, 0, 3, 0, 0], [0] * 8, [0, 4, 0, 5, 0, 6, 0, 0], [0] * 8]))
def pad_edges_and_between(b: B, x: B) -> B:
    return b.pad(x, 0, [(0, 1, 1), (1, 2, 1)])


@EXAMPLES.add("Pad", [SMALL], s32([[0, 2, 0], [0, 5, 0]]))
def pad_negatively_after_the_interior(b: B, x: B) -> B:
    return b.pad(x, 0, [(0, 0, 0), (-1, -1, 1)])


@EXAMPLES.add("Pad", [SMALL], SMALL)
def pad_nothing(b: B, x: B) -> B:
    return b.pad(x, 0, [(0, 0, 0), (0, 0, 0)])


@EXAMPLES.add("Pad", [SMALL], s32([[1, 2, 3, 9], [4, 5, 6, 9]]))
def pad_one_dimension(b: B, x: B) -> B:
    return b.pad_in_dim(x, 9, 1, 0, 1)


@EXAMPLES.add("Reshape", [V], f32(IN_ORDER))
def reshape_in_order(b: B, v: B) -> B:
    return b.reshape(v, [0, 1, 2], [24])


@EXAMPLES.add("Reshape", [V], f32(IN_ORDER).reshape(8, 3))
def reshape_in_order_to_a_matrix(b: B, v: B) -> B:
    return b.reshape(v, [0, 1, 2], [8, 3])


@EXAMPLES.add("Reshape", [V], f32(IN_ORDER).reshape(8, 3))
def reshape_without_dimensions(b: B, v: B) -> B:
    return b.reshape(v, [8, 3])


@EXAMPLES.add("Reshape", [V], f32(OUT_OF_ORDER))
def reshape_out_of_order(b: B, v: B) -> B:
    return b.reshape(v, [1, 2, 0], [24])


@EXAMPLES.add("Reshape", [V], f32(OUT_OF_ORDER).reshape(8, 3))
def reshape_out_of_order_to_a_matrix(b: B, v: B) -> B:
    return b.reshape(v, dimensions=[1, 2, 0], new_sizes=[8, 3])


@EXAMPLES.add("Reshape", [V], f32(OUT_OF_ORDER).reshape(2, 6, 2))
def reshape_out_of_order_to_three(b: B, v: B) -> B:
    return b.reshape(v, [1, 2, 0], [2, 6, 2])


@EXAMPLES.add("Reshape", [f32([[5]])], f32(5))
def reshape_to_a_scalar(b: B, x: B) -> B:
    return b.reshape(x, [0, 1], [])


@EXAMPLES.add("Reshape", [f32(5)], f32([[5]]))
def reshape_of_a_scalar(b: B, x: B) -> B:
    return b.reshape(x, [], [1, 1])


@EXAMPLES.add("Rev", [SMALL], s32([[3, 2, 1], [6, 5, 4]]))
def rev_columns(b: B, x: B) -> B:
    return b.rev(x, [1])


@EXAMPLES.add("Rev", [SMALL], s32([[6, 5, 4], [3, 2, 1]]))
def rev_both(b: B, x: B) -> B:
    return b.rev(x, dimensions=[0, 1])


@EXAMPLES.add("Slice", [LINE], f32([2, 3]))
def slice_of_a_vector(b: B, a: B) -> B:
    return b.slice(a, [2], [4])


@EXAMPLES.add("Slice", [MATRIX], f32([[7, 8], [10, 11]]))
def slice_of_a_matrix(b: B, x: B) -> B:
    return b.slice(x, [2, 1], [4, 3])


@EXAMPLES.add("Slice", [LINE], f32([0, 2, 4]))
def slice_with_strides(b: B, a: B) -> B:
    return b.slice(a, start_indices=[0], limit_indices=[5], strides=[2])


@EXAMPLES.add("Slice", [MATRIX], MATRIX[:, 1:2])
def slice_one_dimension(b: B, x: B) -> B:
    return b.slice_in_dim(x, 1, 2, 1, 1)


@EXAMPLES.add("Transpose", [SMALL], s32([[1, 4], [2, 5], [3, 6]]))
def transpose_matrix(b: B, x: B) -> B:
    return b.transpose(x, permutation=[1, 0])


@EXAMPLES.add("Transpose", [V], f32(OUT_OF_ORDER).reshape(2, 3, 4))
def transpose_as_reshape(b: B, v: B) -> B:
    return b.transpose(v, [1, 2, 0])


@EXAMPLES.add("ReducePrecision", [f32([1.0009765625, 70000.0, 1e-8, -1.5])], f32([1.0009765625, np.inf, 0, -1.5]))
def reduce_precision_to_f16(b: B, x: B) -> B:
    return b.reduce_precision(x, mantissa_bits=10, exponent_bits=5)


@EXAMPLES.add("DynamicSlice", [LINE, s32([2])], f32([2, 3]))
def dynamic_slice_of_a_vector(b: B, a: B, s: B) -> B:
    return b.dynamic_slice(a, s, [2])


@EXAMPLES.add("DynamicSlice", [MATRIX, s32(2), s32(1)], f32([[7, 8], [10, 11]]))
def dynamic_slice_of_a_matrix(b: B, x: B, row: B, column: B) -> B:
    return b.dynamic_slice(x, start_indices=[row, column], size_indices=[2, 2])


@EXAMPLES.add("DynamicSlice", [LINE, s32(4)], f32([3, 4]))
def dynamic_slice_is_clamped(b: B, a: B, start: B) -> B:
    return b.dynamic_slice(a, [start], [2])


@EXAMPLES.add("DynamicUpdateSlice", [LINE, f32([5, 6]), s32([2])], f32([0, 1, 5, 6, 4]))
def dynamic_update_slice_of_a_vector(b: B, a: B, u: B, s: B) -> B:
    return b.dynamic_update_slice(a, u, s)


@EXAMPLES.add(
    "DynamicUpdateSlice",
    [MATRIX, f32([[12, 13], [14, 15], [16, 17]])],
    f32([[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]]),
)
def dynamic_update_slice_of_a_matrix(b: B, x: B, u: B) -> B:
    return b.dynamic_update_slice(x, update=u, start_indices=[1, 1])
