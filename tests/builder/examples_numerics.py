"""Examples: products, normalisation, transforms, random numbers, dynamic dimension sizes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tests.builder.example import Table, f32, s32

EXAMPLES = Table()
B = Any

LHS = f32([[1, 2, 3], [4, 5, 6]])
BATCH = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
RANDOM = np.random.default_rng(7)
IMAGES = RANDOM.integers(-3, 4, (2, 3, 5, 6)).astype(np.float32)
KERNEL = RANDOM.integers(-2, 3, (4, 3, 2, 3)).astype(np.float32)


def convolved(x: Any, kernel: Any, strides: Any, pads: Any) -> Any:
    """The page's pseudo-code for two spatial dimensions."""
    batch, _, height, width = x.shape
    out, features, ky, kx = kernel.shape
    (low_y, high_y), (low_x, high_x) = pads
    rows = (height + low_y + high_y - ky) // strides[0] + 1
    columns = (width + low_x + high_x - kx) // strides[1] + 1
    result = np.zeros((batch, out, rows, columns), np.float32)
    for oy in range(rows):
        for ox in range(columns):
            for iz in range(features):
                for y in range(ky):
                    for c in range(kx):
                        iy, ix = oy * strides[0] + y - low_y, ox * strides[1] + c - low_x
                        if 0 <= iy < height and 0 <= ix < width:
                            result[:, :, oy, ox] += np.outer(x[:, iz, iy, ix], kernel[:, iz, y, c])
    return result


@EXAMPLES.add("Dot", [f32([1, 2, 3]), f32([4, 5, 6])], f32(32))
def dot_of_vectors(b: B, x: B, y: B) -> B:
    return b.dot(x, y)


@EXAMPLES.add("Dot", [LHS, f32([1, 1, 2])], f32([9, 21]))
def dot_of_matrix_and_vector(b: B, x: B, y: B) -> B:
    return b.dot(lhs=x, rhs=y)


@EXAMPLES.add("Dot", [LHS, LHS.T.copy()], LHS @ LHS.T)
def dot_of_matrices(b: B, x: B, y: B) -> B:
    return b.dot(x, y, precision_config="highest")


@EXAMPLES.add("DotGeneral", [LHS, f32([[1, 1, 1], [2, 2, 2]])], f32([[6, 12], [15, 30]]))
def dot_general_contracts(b: B, x: B, y: B) -> B:
    numbers = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]}
    return b.dot_general(x, y, numbers)


@EXAMPLES.add("DotGeneral", [BATCH, f32([[[1, 0], [0, 1]]] * 2)], BATCH)
def dot_general_of_batches(b: B, x: B, y: B) -> B:
    return b.dot_general(x, y, dimension_numbers=(([2], [1]), ([0], [0])), preferred_element_type="f32")


@EXAMPLES.add("Conv", [IMAGES, KERNEL], convolved(IMAGES, KERNEL, (1, 1), ((0, 0), (0, 0))))
def conv_valid(b: B, x: B, k: B) -> B:
    return b.conv(x, k, [1, 1], "valid")


@EXAMPLES.add("Conv", [IMAGES, KERNEL], convolved(IMAGES, KERNEL, (1, 1), ((0, 1), (1, 1))))
def conv_same(b: B, x: B, k: B) -> B:
    return b.conv(x, k, [1, 1], padding="same")


@EXAMPLES.add("ConvWithGeneralPadding", [IMAGES, KERNEL], convolved(IMAGES, KERNEL, (2, 3), ((1, 0), (2, 3))))
def conv_with_strides_and_padding(b: B, x: B, k: B) -> B:
    return b.conv_with_general_padding(x, k, window_strides=[2, 3], padding=[(1, 0), (2, 3)])


@EXAMPLES.add(
    "ConvWithGeneralPadding", [IMAGES, KERNEL], convolved(IMAGES[:, :, 1:], KERNEL, (1, 1), ((0, 0), (0, -1)))
)
def conv_with_negative_padding(b: B, x: B, k: B) -> B:
    return b.conv_with_general_padding(x, k, [1, 1], [(-1, 0), (0, -1)])


@EXAMPLES.add(
    "ConvWithGeneralPadding",
    [IMAGES, KERNEL],
    convolved(IMAGES, np.insert(KERNEL, 1, 0, axis=2), (1, 1), ((0, 0), (0, 0))),
)
def conv_with_rhs_dilation(b: B, x: B, k: B) -> B:
    return b.conv_with_general_padding(x, k, [1, 1], [(0, 0), (0, 0)], rhs_dilation=[2, 1])


@EXAMPLES.add(
    "ConvWithGeneralPadding",
    [IMAGES.transpose(0, 2, 3, 1).copy(), KERNEL.transpose(2, 3, 1, 0).copy()],
    convolved(IMAGES, KERNEL[:, :, ::-1, ::-1], (1, 1), ((1, 1), (0, 0))).transpose(0, 2, 3, 1),
)
def conv_general_dilated_with_labels(b: B, x: B, k: B) -> B:
    return b.conv_general_dilated(
        x,
        k,
        window_strides=[1, 1],
        padding=[(1, 1), (0, 0)],
        lhs_dilation=[1, 1],
        rhs_dilation=[1, 1],
        dimension_numbers="b01f_01io->b01f",
        window_reversal=[True, True],
    )


@EXAMPLES.add("ConvWithGeneralPadding", [IMAGES, KERNEL[:3, :1].copy()], np.concatenate(
    [convolved(IMAGES[:, g : g + 1], KERNEL[g : g + 1, :1], (1, 1), ((0, 0), (0, 0))) for g in range(3)], axis=1
))  # fmt: skip
def conv_depthwise(b: B, x: B, k: B) -> B:
    return b.conv_with_general_padding(x, k, [1, 1], [(0, 0), (0, 0)], feature_group_count=3)


@EXAMPLES.add("ConvWithGeneralPadding", [IMAGES, KERNEL], np.concatenate(
    [convolved(IMAGES[g : g + 1], KERNEL[2 * g : 2 * g + 2], (1, 1), ((0, 0), (0, 0))) for g in range(2)], axis=1
))  # fmt: skip
def conv_by_batch_groups(b: B, x: B, k: B) -> B:
    return b.conv_with_general_padding(x, k, [1, 1], [(0, 0), (0, 0)], batch_group_count=2)


NORMALISED = f32([[1, 10], [3, 30]])


@EXAMPLES.add(
    "BatchNormTraining",
    [NORMALISED, f32([1, 2]), f32([0, 5])],
    f32([[-1, 3], [1, 7]]), f32([2, 20]), f32([1, 100]), off=1e-6,
)  # fmt: skip
def batch_norm_training(b: B, x: B, scale: B, offset: B) -> B:
    return b.batch_norm_training(x, scale, offset, epsilon=0.0, feature_index=1)


@EXAMPLES.add("BatchNormInference", [NORMALISED, f32([1, 2]), f32([0, 5])], f32([[-1, 3], [1, 7]]), off=1e-6)
def batch_norm_inference(b: B, x: B, scale: B, offset: B) -> B:
    return b.batch_norm_inference(x, scale, offset, mean=[2, 20], variance=[1, 100], epsilon=0.0, feature_index=1)


@EXAMPLES.add(
    "BatchNormGrad",
    [NORMALISED, f32([1, 2]), f32([[1, 2], [3, 5]])],
    f32([[0, 0], [0, 0]]), f32([2, 3]), f32([4, 7]), off=1e-6,
)  # fmt: skip
def batch_norm_grad(b: B, x: B, scale: B, gradient: B) -> B:
    return b.batch_norm_grad(x, scale, [2, 20], [1, 100], grad_output=gradient, epsilon=0.0, feature_index=1)


@EXAMPLES.add("Cholesky", [f32([[4, 2], [2, 5]])], f32([[2, 0], [1, 2]]))
def cholesky_lower(b: B, a: B) -> B:
    # what stands in the other triangle is nobody's business
    return b.select(b.ge(b.iota("s32[2,2]", 0), b.iota("s32[2,2]", 1)), b.cholesky(a, lower=True), 0)


@EXAMPLES.add("TriangularSolve", [f32([[2, 0], [1, 4]]), f32([[2, 4], [9, 10]])], f32([[1, 2], [2, 2]]))
def triangular_solve_from_the_left(b: B, a: B, y: B) -> B:
    return b.triangular_solve(a, y, left_side=True, lower=True, unit_diagonal=False, transpose_a="no_transpose")


@EXAMPLES.add(
    "Fft", [np.array([1, 2, 3, 4], np.complex64)], np.array([10, -2 + 2j, -2, -2 - 2j], np.complex64), off=1e-6
)
def fft_forward(b: B, x: B) -> B:
    return b.fft(x, "FFT", [4])


@EXAMPLES.add("Fft", [f32([1, 2, 3, 4])], np.array([10, -2 + 2j, -2], np.complex64), f32([1, 2, 3, 4]), off=1e-6)
def fft_of_reals_and_back(b: B, x: B) -> B:
    half = b.fft(x, fft_type="RFFT", fft_length=[4])
    return b.tuple([half, b.fft(half, "IRFFT", [4])])


@EXAMPLES.add("RngBitGenerator", [np.array([1, 2], np.uint64)], np.array([1, 3], np.uint64), s32(2))
def rng_bit_generator_gives_state_and_bits(b: B, state: B) -> B:
    following, found = b.rng_bit_generator("rng_three_fry", initial_state=state, shape="u32[2]")
    return b.tuple([following, b.get_dimension_size(found, 0)])


@EXAMPLES.add("RngUniform", [f32(2.0), f32(3.0)], np.array([True] * 64), np.array([True] * 64))
def rng_uniform_is_in_range(b: B, low: B, high: B) -> B:
    found = b.rng_uniform(low, high, "f32[64]")
    return b.tuple([found >= 2, found < 3])


@EXAMPLES.add("RngNormal", [f32(5.0), f32(0.0)], f32([5.0] * 8))
def rng_normal_without_deviation(b: B, mu: B, sigma: B) -> B:
    return b.rng_normal(mu, sigma, "f32[8]")


@EXAMPLES.add("RngBernoulli", [f32(0.0), f32(1.0)], np.zeros(9, np.uint32), np.ones(9, np.uint32))
def rng_bernoulli_of_never_and_always(b: B, never: B, always: B) -> B:
    return b.tuple([b.rng_bernoulli(never, "u32[9]"), b.rng_bernoulli(always, "u32[9]")])


@EXAMPLES.add("SetDimensionSize", [f32(np.arange(1, 11))], f32(15), f32(120), f32(21))
def set_dimension_size_bounds_reductions(b: B, v: B) -> B:
    five = b.set_dimension_size(v, 5, dimension=0)
    six = b.set_dimension_size(v, b.constant(6), 0)
    return b.tuple([
        b.reduce(five, 0, operator.add, [0]), b.reduce(five, 1, operator.mul, [0]), b.reduce(six, 0, operator.add, [0]),
    ])  # fmt: skip


@EXAMPLES.add("GetDimensionSize", [f32(np.arange(6).reshape(2, 3))], s32(3), s32(1))
def get_dimension_size_of_both_kinds(b: B, x: B) -> B:
    return b.tuple([b.get_dimension_size(x, 1), b.get_dimension_size(b.set_dimension_size(x, 1, 0), dimension=0)])


@EXAMPLES.add("TopK", [f32([3, 9, 4, 9, 1])], f32([9, 9, 4]), s32([1, 3, 2]))
def top_three(b: B, x: B) -> B:
    return b.top_k(x, k=3)
