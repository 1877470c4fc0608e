"""Examples: element-wise operations, broadcasting, choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.builder.example import Table, f32, s32

EXAMPLES = Table()
B = Any

ONES = s32([[1, 2, 3], [4, 5, 6]])
PRED = np.array([True, False, False, True])
V1, V2 = s32([1, 2, 3, 4]), s32([100, 200, 300, 400])
NAN_ORDER = np.array([-np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan], np.float32)
UNSORTED = NAN_ORDER[[6, 3, 7, 0, 5, 4, 1, 2]]


@EXAMPLES.add("Clamp", [s32([-1, 5, 9]), s32(0), s32(6)], s32([0, 5, 6]))
def clamp_by_scalars(b: B, operand: B, low: B, high: B) -> B:
    return b.clamp(min=low, operand=operand, max=high)


@EXAMPLES.add("Clamp", [s32([-1, 5, 9])], s32([0, 5, 6]))
def clamp_in_the_older_form(b: B, operand: B) -> B:
    return b.clamp(None, operand, 0, 6)


@EXAMPLES.add("Select", [PRED, V1, V2], s32([1, 200, 300, 4]))
def select_by_elements(b: B, pred: B, v1: B, v2: B) -> B:
    return b.select(pred, on_true=v1, on_false=v2)


@EXAMPLES.add("Select", [np.array(True), V1, V2], V1)
def select_by_a_scalar(b: B, pred: B, v1: B, v2: B) -> B:
    return b.select(pred, v1, v2)


@EXAMPLES.add("Select", [np.array(False), V1, V2], V2, V1)
def select_between_tuples(b: B, pred: B, v1: B, v2: B) -> B:
    return b.select(pred, b.tuple([v1, v2]), b.tuple([v2, v1]))


# the examples of the page on broadcasting
@EXAMPLES.add("Element-wise binary arithmetic operations", [ONES, s32(7)], ONES + 7)
def add_scalar_to_matrix(b: B, x: B, y: B) -> B:
    return b.add(x, y)


@EXAMPLES.add("Element-wise binary arithmetic operations", [ONES, s32([7, 8, 9])], ONES + s32([7, 8, 9]))
def add_vector_to_rows(b: B, x: B, y: B) -> B:
    return b.add(x, y, broadcast_dimensions=[1])


@EXAMPLES.add("Element-wise binary arithmetic operations", [ONES, s32([7, 8])], ONES + s32([[7], [8]]))
def add_vector_to_columns(b: B, x: B, y: B) -> B:
    return b.add(x, y, [0])


@EXAMPLES.add("Element-wise binary arithmetic operations", [ONES, s32([[7], [8]])], ONES + s32([[7], [8]]))
def add_degenerate_dimension(b: B, x: B, y: B) -> B:
    return b.add(x, y)


@EXAMPLES.add(
    "Element-wise binary arithmetic operations", [s32([[1, 2, 3]]), s32([[7], [8]])], s32([[8, 9, 10], [9, 10, 11]])
)
def add_degenerate_dimensions_of_both(b: B, x: B, y: B) -> B:
    return b.add(x, y)


@EXAMPLES.add(
    "Element-wise binary arithmetic operations",
    [s32(np.arange(4).reshape(4)), s32(np.arange(2).reshape(1, 2))],
    s32([[0, 1], [1, 2], [2, 3], [3, 4]]),
)
def add_ranks_and_degenerate_dimensions(b: B, vector: B, matrix: B) -> B:
    return b.add(vector, matrix, broadcast_dimensions=[0])


@EXAMPLES.add(
    "Element-wise binary arithmetic operations", [s32([7, -7, 7, -7]), s32([2, 2, -2, -2])], s32([1, -1, 1, -1])
)
def rem_has_the_dividends_sign(b: B, x: B, y: B) -> B:
    return b.rem(x, y)


@EXAMPLES.add(
    "Element-wise binary arithmetic operations",
    [s32([6, 12]), s32([4, 5])],
    s32([2, 7]), s32([24, 60]), s32([1, 2]), s32([6**4, 12**5]), s32([6, 12]), s32([4, 5]), s32([4, 4]),
    s32([6, 13]), s32([2, 9]), s32([96, 384]), s32([0, 0]), s32([0, 0]),
)  # fmt: skip
def integer_arithmetic(b: B, x: B, y: B) -> B:
    return b.tuple([
        b.sub(x, y), b.mul(x, y), b.div(x, y), b.pow(x, y), b.max(x, y), b.min(x, y), b.and_(x, y), b.or_(x, y),
        b.xor(x, y), b.shift_left(x, y), b.shift_right_arithmetic(x, y), b.shift_right_logical(x, y),
    ])  # fmt: skip


@EXAMPLES.add(
    "Element-wise binary arithmetic operations",
    [f32([1, -1]), f32([0, 0])],
    f32([np.pi / 2, -np.pi / 2]),
    np.array([1, -1], np.complex64),
    off=1e-6,
)
def atan2_and_complex(b: B, x: B, y: B) -> B:
    return b.tuple([b.atan2(x, y), b.complex(x, y)])


@EXAMPLES.add(
    "Element-wise comparison operations",
    [f32([1, 2, np.nan]), f32([1, 3, np.nan])],
    *np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 1, 0]], bool),
)
def comparisons(b: B, x: B, y: B) -> B:
    return b.tuple([b.eq(x, y), b.ne(x, y), b.ge(x, y), b.gt(x, y), b.le(x, y), b.lt(x, y)])


@EXAMPLES.add(
    "Element-wise comparison operations",
    [NAN_ORDER[:-1], NAN_ORDER[1:]],
    *np.array([[0] * 7, [1] * 7, [0] * 7, [0] * 7, [1] * 7, [1] * 7], bool),
)
def total_order_comparisons(b: B, x: B, y: B) -> B:
    return b.tuple([
        b.eq_total_order(x, y), b.ne_total_order(x, y), b.ge_total_order(x, y), b.gt_total_order(x, y),
        b.le_total_order(x, y), b.lt_total_order(x, y),
    ])  # fmt: skip


@EXAMPLES.add("Element-wise comparison operations", [ONES, s32([2, 5])], s32([[2], [5]]) < ONES)
def comparison_with_broadcast_dimensions(b: B, x: B, y: B) -> B:
    return b.gt(x, y, broadcast_dimensions=[0])


@EXAMPLES.add(
    "Element-wise unary functions",
    [f32([-2.5, -0.5, 0.5, 1.5])],
    f32([2.5, 0.5, 0.5, 1.5]), f32([-2, -0.0, 1, 2]), f32([-3, -1, 0, 1]), f32([2.5, 0.5, -0.5, -1.5]),
    f32([-3, -1, 1, 2]), f32([-2, -0.0, 0, 2]), f32([-1, -1, 1, 1]), f32([-2.5, -0.5, 0.5, 1.5]), f32([0, 0, 0, 0]),
    np.array([True] * 4),
)  # fmt: skip
def exact_functions(b: B, x: B) -> B:
    return b.tuple([
        b.abs(x), b.ceil(x), b.floor(x), b.neg(x), b.round(x), b.round_nearest_even(x), b.sign(x), b.real(x), b.imag(x),
        b.is_finite(x),
    ])  # fmt: skip


@EXAMPLES.add(
    "Element-wise unary functions",
    [f32([0.5, 1.0])],
    *(f(np.array([0.5, 1.0])).astype(np.float32) for f in (
        np.cbrt, np.cos, np.exp, np.expm1, np.log, np.log1p, lambda x: 1 / (1 + np.exp(-x)), lambda x: 1 / np.sqrt(x),
        np.sin, np.sqrt, np.tan, np.tanh, lambda x: np.array([0.5204998778130465, 0.8427007929497149]),
    )),
    off=1e-6,
)  # fmt: skip
def rounded_functions(b: B, x: B) -> B:
    return b.tuple([
        b.cbrt(x), b.cos(x), b.exp(x), b.expm1(x), b.log(x), b.log1p(x), b.logistic(x), b.rsqrt(x), b.sin(x), b.sqrt(x),
        b.tan(x), b.tanh(x), b.erf(x),
    ])  # fmt: skip


@EXAMPLES.add(
    "Element-wise unary functions", [s32([0, 1, 255])], s32([32, 31, 24]), s32([0, 1, 8]), s32([-1, -2, -256])
)
def bits(b: B, x: B) -> B:
    return b.tuple([b.clz(x), b.population_count(x), b.not_(x)])


@EXAMPLES.add("GetTupleElement", [f32(np.arange(10))], s32(5))
def tuple_element(b: B, v: B) -> B:
    t = b.tuple([v, b.constant(5)])
    return b.get_tuple_element(t, 1)


@EXAMPLES.add("Tuple", [f32(np.arange(10))], f32(np.arange(10)), s32(5))
def tuple_of_two(b: B, v: B) -> B:
    return b.tuple([v, 5])


@EXAMPLES.add("Sort", [UNSORTED], NAN_ORDER)
def sort_in_the_older_form(b: B, x: B) -> B:
    return b.sort(x)


@EXAMPLES.add("Sort", [s32([3, 1]), s32([42, 50]), f32([-3.0, 1.1])], s32([1, 3]), s32([50, 42]), f32([1.1, -3.0]))
def sort_three_by_the_first(b: B, x: B, y: B, z: B) -> B:
    return b.sort([x, y, z], lambda a0, b0, a1, b1, a2, b2: a0 < b0, dimension=0, is_stable=True)


@EXAMPLES.add("Sort", [s32([[3, 1], [2, 4]])], s32([[2, 1], [3, 4]]))
def sort_columns(b: B, x: B) -> B:
    return b.sort([x], lambda p, q: p < q, dimension=0)


@EXAMPLES.add("Sort", [s32([[3, 1], [2, 4]])], s32([[3, 1], [4, 2]]))
def sort_rows_downwards(b: B, x: B) -> B:
    return b.sort(x, lambda p, q: p > q)
