"""Batch normalisation, Fourier transforms, linear algebra and random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.builder.accepted_values import ShapeLike, as_flag, as_integer, as_integers, as_number, as_shape, as_word
from distxla.builder.blame import broken_rule
from distxla.builder.data_movement import DataMovement
from distxla.builder.elementwise_binary import ElementwiseBinary
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ir.element_type import F32, U64
from distxla.ir.shape import Shape
from distxla.ops.batch_norm import BatchNormGrad, BatchNormInference, BatchNormTraining
from distxla.ops.cholesky import Cholesky
from distxla.ops.fft import Fft
from distxla.ops.rng import Rng, RngBitGenerator, RngGetAndUpdateState
from distxla.ops.triangular_solve import TriangularSolve


class Numerics(ElementwiseBinary, DataMovement):
    """Pages BatchNorm*, Fft, Cholesky, TriangularSolve, Rng*."""

    # --- batch normalisation ----------------------------------------------------------------------------------------

    def batch_norm_training(
        self, operand: OperandLike, scale: OperandLike, offset: OperandLike, epsilon: float, feature_index: int
    ) -> XlaOp:
        """(the normalised operand, its mean, its variance) over all dimensions but the feature."""
        op = BatchNormTraining(
            epsilon=as_number(epsilon, "epsilon"), feature_index=as_integer(feature_index, "feature_index")
        )
        return self._add(op, self._alike(operand, scale, offset))

    def batch_norm_inference(
        self,
        operand: OperandLike,
        scale: OperandLike,
        offset: OperandLike,
        mean: OperandLike,
        variance: OperandLike,
        epsilon: float,
        feature_index: int,
    ) -> XlaOp:
        """The operand normalised with a given mean and variance."""
        op = BatchNormInference(
            epsilon=as_number(epsilon, "epsilon"), feature_index=as_integer(feature_index, "feature_index")
        )
        return self._add(op, self._alike(operand, scale, offset, mean, variance))

    def batch_norm_grad(
        self,
        operand: OperandLike,
        scale: OperandLike,
        mean: OperandLike,
        variance: OperandLike,
        grad_output: OperandLike,
        epsilon: float,
        feature_index: int,
    ) -> XlaOp:
        """(the gradients with respect to operand, scale and offset) of batch_norm_training."""
        op = BatchNormGrad(
            epsilon=as_number(epsilon, "epsilon"), feature_index=as_integer(feature_index, "feature_index")
        )
        return self._add(op, self._alike(operand, scale, mean, variance, grad_output))

    def _alike(self, operand: OperandLike, *others: OperandLike) -> list[XlaOp]:
        """Arrays; constants take the element type of the first operand."""
        first = self._array(operand)
        return [first, *(self._array(other, first.dtype) for other in others)]

    # --- transforms and matrices ------------------------------------------------------------------------------------

    def fft(self, operand: OperandLike, fft_type: str, fft_length: Sequence[int]) -> XlaOp:
        """fft_type: FFT, IFFT, RFFT, IRFFT.  fft_length: of the last one to three dimensions, in the time domain."""
        op = Fft(fft_type=as_word(fft_type, "fft_type").upper(), fft_length=as_integers(fft_length, "fft_length"))
        return self._add(op, [self._array(operand)])

    def cholesky(self, a: OperandLike, lower: bool = True) -> XlaOp:
        """The triangular factor of each matrix of a batch, of which only the same triangle is read."""
        return self._add(Cholesky(lower=as_flag(lower, "lower")), [self._array(a)])

    def triangular_solve(
        self,
        a: OperandLike,
        b: OperandLike,
        left_side: bool,
        lower: bool,
        unit_diagonal: bool = False,
        transpose_a: str = "NO_TRANSPOSE",
    ) -> XlaOp:
        """x of op(a) x = b (left_side) or x op(a) = b.  transpose_a: NO_TRANSPOSE, TRANSPOSE, ADJOINT."""
        op = TriangularSolve(
            left_side=as_flag(left_side, "left_side"),
            lower=as_flag(lower, "lower"),
            unit_diagonal=as_flag(unit_diagonal, "unit_diagonal"),
            transpose_a=as_word(transpose_a, "transpose_a").upper(),
        )
        return self._add(op, self._alike(a, b))

    # --- random numbers ---------------------------------------------------------------------------------------------

    def rng_normal(self, mu: OperandLike, sigma: OperandLike, shape: ShapeLike) -> XlaOp:
        """Numbers of `shape` with mean mu and standard deviation sigma."""
        return self._rng("rng_normal", mu, sigma, shape)

    def rng_uniform(self, a: OperandLike, b: OperandLike, shape: ShapeLike) -> XlaOp:
        """Numbers of `shape` in [a, b)."""
        return self._rng("rng_uniform", a, b, shape)

    def rng_bernoulli(self, mean: OperandLike, shape: ShapeLike) -> XlaOp:
        """1 with probability `mean` (f32[]), else 0, as elements of `shape` (u32 on the older pages)."""
        result = as_shape(shape)
        if not result.is_array or not (result.dtype.is_integer or result.dtype.kind == "pred"):
            raise broken_rule(f"rng-bernoulli.shape: {result} is no array of integers", "shape")
        limit = self._array(mean, F32)
        if not limit.shape.compatible(Shape(F32)):
            raise broken_rule(f"rng-bernoulli.mean: it is {limit.shape}, not f32[]", "mean")
        numbers = self._rng("rng_uniform", 0.0, 1.0, Shape(F32, result.dims))
        return self.convert_element_type(self.lt(numbers, limit), result.dtype)

    def _rng(self, distribution: str, first: OperandLike, second: OperandLike, shape: ShapeLike) -> XlaOp:
        result = as_shape(shape)
        if not result.is_array:
            raise broken_rule(f"rng.C1: gives an array, not {result}", "shape")
        operands = [self._array(value, result.dtype) for value in (first, second)]
        return self._add(Rng(distribution=distribution), operands, result)

    def rng_bit_generator(self, algorithm: str, initial_state: OperandLike, shape: ShapeLike) -> XlaOp:
        """(the next state, random bits of `shape`).

        algorithm: rng_default, rng_three_fry (state u64[2]) or rng_philox (state u64[3]).
        """
        state = self._array(initial_state, U64)
        result = Shape.tuple((state.shape.without_layout(), as_shape(shape)))
        word = as_word(algorithm, "algorithm").lower()
        name = word if word.startswith("rng_") else f"rng_{word}"
        return self._add(RngBitGenerator(algorithm=name), [state], result)

    def rng_get_and_update_state(self, delta: int, shape: ShapeLike = "u64[2]") -> XlaOp:
        """The device's random state, which then advances by `delta`."""
        return self._add(RngGetAndUpdateState(delta=as_integer(delta, "delta")), (), as_shape(shape))
