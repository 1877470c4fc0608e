"""Examples: operations that call computations."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import distxla as dx
from tests.builder.example import Table, f32, s32

EXAMPLES = Table()
B = Any

CUBE = f32([[[1, 2, 3], [4, 5, 6]]] * 4)
OVER_4_BY_6 = f32(np.arange(24).reshape(4, 6) * 7 % 24)
# the arrays of the page's two figures
FIRST = s32([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
SECOND = s32([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])
SOURCE = s32([[2, 6], [3, 1]])


@EXAMPLES.add("Reduce", [s32([10, 11, 12, 13])], s32(46))
def reduce_vector(b: B, x: B) -> B:
    return b.reduce(x, 0, operator.add, [0])


@EXAMPLES.add("Reduce", [f32([[1, 2, 3], [4, 5, 6]])], f32([5, 7, 9]), f32([6, 15]))
def reduce_matrix(b: B, x: B) -> B:
    return b.tuple([b.reduce(x, 0, operator.add, [0]), b.reduce(x, 0, operator.add, [1])])


@EXAMPLES.add("Reduce", [CUBE], f32([[4, 8, 12], [16, 20, 24]]))
def reduce_first_of_three(b: B, x: B) -> B:
    return b.reduce(operands=x, init_values=0, computation=operator.add, dimensions=[0])


@EXAMPLES.add("Reduce", [CUBE], f32([[6, 15]] * 4))
def reduce_last_of_three(b: B, x: B) -> B:
    return b.reduce(x, 0, operator.add, [2])


@EXAMPLES.add("Reduce", [CUBE], f32([20, 28, 36]), f32([20, 28, 36]))
def reduce_two_of_three_in_both_orders(b: B, x: B) -> B:
    return b.tuple([b.reduce(x, 0, operator.add, [0, 1]), b.reduce(x, 0, operator.add, [1, 0])])


@EXAMPLES.add("Reduce", [CUBE], f32(84))
def reduce_all_of_three(b: B, x: B) -> B:
    return b.reduce_all(x, 0, operator.add)


@EXAMPLES.add("Reduce", [f32([3, 9, 4, 9, 1])], f32(9), s32(3))
def reduce_to_max_and_argmax(b: B, v: B) -> B:
    def f(largest: B, argmax: B, value: B, index: B) -> B:
        take = value >= largest
        return take.builder.select(take, value, largest), take.builder.select(take, index, argmax)

    return b.reduce([v, b.iota("s32[5]", 0)], [b.min_value("f32"), 0], f, [0])


def maximum() -> Any:
    """The computation of the page's example."""
    builder = dx.XlaBuilder("max")
    y = builder.parameter(0, "f32[]", "y")
    x = builder.parameter(1, "f32[]", "x")
    builder.max(y, x)
    return builder.build()


@EXAMPLES.add("ReduceWindow", [OVER_4_BY_6], OVER_4_BY_6.reshape(2, 2, 2, 3).max(axis=(1, 3)))
def reduce_window_2x3(b: B, x: B) -> B:
    return b.reduce_window(x, b.constant_literal(np.float32(-np.inf)), maximum(), [2, 3], [2, 3], "valid")


@EXAMPLES.add("ReduceWindow", [f32([10000, 1000, 100, 10, 1])], f32([100, 1]))
def reduce_window_valid(b: B, x: B) -> B:
    return b.reduce_window(x, b.max_value("f32"), lambda p, q: p.builder.min(p, q), [3], [2], "valid")


@EXAMPLES.add("ReduceWindow", [f32([10000, 1000, 100, 10, 1])], f32([1000, 10, 1]))
def reduce_window_same(b: B, x: B) -> B:
    return b.reduce_window(
        operands=x,
        init_values=b.max_value("f32"),
        computation=lambda p, q: p.builder.min(p, q),
        window_dimensions=[3],
        window_strides=[2],
        padding="same",
    )


@EXAMPLES.add("ReduceWindow", [s32([1, 2, 3, 4])], s32([1, 3, 6, 10]), s32([4, 6]))
def reduce_window_with_pads_and_dilations(b: B, x: B) -> B:
    sums = b.reduce_window(x, 0, operator.add, [4], [1], [(3, 0)])
    return b.tuple([sums, b.reduce_window(x, 0, operator.add, [2], window_dilations=[2])])


def greater_or_equal(p: B, q: B) -> B:
    return p >= q


@EXAMPLES.add(
    "SelectAndScatter",
    [FIRST, SOURCE],
    s32([[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]]),
)
def select_and_scatter_without_overlap(b: B, operand: B, source: B) -> B:
    return b.select_and_scatter(operand, greater_or_equal, [2, 3], [2, 3], "valid", source, 0, operator.add)


@EXAMPLES.add(
    "SelectAndScatter",
    [SECOND, SOURCE],
    s32([[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]),
)
def select_and_scatter_with_overlap(b: B, operand: B, source: B) -> B:
    return b.select_and_scatter(
        operand=operand,
        select=greater_or_equal,
        window_dimensions=[2, 3],
        window_strides=[2, 2],
        padding="valid",
        source=source,
        init_value=0,
        scatter=operator.add,
    )


@EXAMPLES.add("Map", [f32([1, 2]), f32([3, 4]), f32([5, 6]), f32(10)], f32([26, 36]))
def map_three_and_a_static_operand(b: B, op1: B, op2: B, op3: B, par1: B) -> B:
    return b.map([op1, op2, op3], lambda x, y, z, p: x + y * z + p, [0], static_operands=[par1])


@EXAMPLES.add("Map", [f32([[1, 2], [3, 4]])], s32([[2, 3], [4, 5]]))
def map_to_another_type(b: B, x: B) -> B:
    return b.map(x, computation=lambda p: p.builder.convert_element_type(p + 1, "s32"))


@EXAMPLES.add("Call", [f32([1, 2]), f32([3, 5])], f32([4, 7]), f32(1))
def call_with_and_without_arguments(b: B, x: B, y: B) -> B:
    one = dx.XlaBuilder("one")
    one.constant(1.0)
    return b.tuple([b.call(lambda p, q: p + q, x, y), b.call(one)])


@EXAMPLES.add("CompositeCall", [f32(3)], f32(4))
def composite(b: B, x: B) -> B:
    return b.composite_call(
        lambda p: p + 1,
        x,
        name="foo.bar",
        composite_attributes="{n = 1 : i32, tensor = dense<1> : tensor<i32>}",
        version=1,
    )


@EXAMPLES.add("Conditional", [np.array(True), f32(3), s32(4)], f32(6))
def conditional_by_a_true_predicate(b: B, pred: B, x: B, y: B) -> B:
    return b.conditional(pred, x, lambda p: p * 2, y, lambda q: q.builder.convert_element_type(q, "f32"))


@EXAMPLES.add("Conditional", [np.array(False), f32(3), s32(4)], f32(4))
def conditional_by_a_false_predicate(b: B, pred: B, x: B, y: B) -> B:
    return b.conditional(
        pred=pred,
        true_operand=x,
        true_computation=lambda p: p * 2,
        false_operand=y,
        false_computation=lambda q: q.builder.convert_element_type(q, "f32"),
    )


@EXAMPLES.add("Conditional", [s32([0, 1, 2, 3, -1])], f32([1, 4, 9, 9, 9]))
def conditional_by_an_index(b: B, indices: B) -> B:
    branches = [lambda p: p, lambda p: p * p, lambda p: p * 3]
    found = [b.conditional(indices[k], branches, [f32(1), f32(2), f32(3)]) for k in range(5)]
    return b.concatenate([b.reshape(x, [1]) for x in found], 0)


@EXAMPLES.add("While", [f32(np.arange(10))], s32(1000), f32(np.arange(10) * 1000))
def while_accumulates(b: B, vector: B) -> B:
    init = (0, b.broadcast(b.constant(0.0), [10]), vector)
    result = b.while_(
        condition=lambda s: s[0] < 1000,
        body=lambda s: (s[0] + 1, s[1] + s[2], s[2]),
        init=init,
    )
    return b.tuple([result[0], result[1]])


@EXAMPLES.add("Infeed", [s32([3, 4])], s32([3, 4]))
def optimization_barrier_and_tokens(b: B, x: B) -> B:
    token = b.after_all([b.create_token(), b.create_token()])
    return b.add_dependency(b.optimization_barrier(x), token)


GATHERED = s32(np.arange(16 * 11).reshape(16, 11))
STARTS = s32([[0, 0], [3, 2], [8, 5], [15, 10], [-4, 1]])


def _windows(starts: Any) -> Any:
    rows, columns = np.clip(starts[..., 0], 0, 8), np.clip(starts[..., 1], 0, 5)
    flat = [GATHERED[r : r + 8, c : c + 6] for r, c in zip(rows.ravel(), columns.ravel(), strict=True)]
    return np.array(flat).reshape(*starts.shape[:-1], 8, 6)


@EXAMPLES.add("Gather", [GATHERED, STARTS], _windows(STARTS))
def gather_five_windows(b: B, x: B, starts: B) -> B:
    return b.gather(x, starts, offset_dims=[1, 2], collapsed_slice_dims=[], slice_sizes=[8, 6], start_index_map=[0, 1])


MANY = s32(np.stack(np.meshgrid(np.arange(4), np.arange(5), indexing="ij"), axis=-1))


@EXAMPLES.add("Gather", [GATHERED, MANY], _windows(MANY))
def gather_windows_by_a_table(b: B, x: B, starts: B) -> B:
    return b.gather(x, starts, [2, 3], [], [8, 6], [0, 1])


@EXAMPLES.add("Gather", [GATHERED, s32([[5], [0], [15]])], GATHERED[[5, 0, 15]])
def gather_rows(b: B, x: B, rows: B) -> B:
    return b.gather(x, rows, offset_dims=[1], collapsed_slice_dims=[0], slice_sizes=[1, 11], start_index_map=[0])


@EXAMPLES.add("Gather", [GATHERED, s32([5, 0, 15])], GATHERED[[5, 0, 15]])
def gather_rows_without_a_vector_dimension(b: B, x: B, rows: B) -> B:
    return b.gather(x, rows, [1], [0], [1, 11], [0], index_vector_dim=1)


@EXAMPLES.add("Scatter", [s32([0, 0, 0, 0]), s32([[1], [3], [1], [9]]), s32([5, 6, 7, 8])], s32([0, 12, 0, 6]))
def scatter_adds(b: B, x: B, where: B, updates: B) -> B:
    return b.scatter(
        x,
        where,
        updates,
        operator.add,
        index_vector_dim=1,
        update_window_dims=[],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
    )


@EXAMPLES.add(
    "Scatter", [s32([1, 2, 3]), f32([1, 2, 3]), s32([[2]]), s32([9]), f32([8])], s32([1, 2, 9]), f32([1, 2, 8])
)
def scatter_two(b: B, x: B, y: B, where: B, u: B, v: B) -> B:
    return b.scatter([x, y], where, [u, v], lambda p, q, r, s: (r, s), 1, [], [0], [0], unique_indices=True)
