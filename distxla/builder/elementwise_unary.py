"""Element-wise functions of one operand."""

from __future__ import annotations

from distxla.builder.recorder import Recorder
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ops.support.registry import op_class


class ElementwiseUnary(Recorder):
    """Page "Element-wise unary functions": each element of the result is made of the operand's element there."""

    def _unary(self, opcode: str, operand: OperandLike) -> XlaOp:
        return self._add(op_class(opcode)(), [self._array(operand)])

    def abs(self, operand: OperandLike) -> XlaOp:
        """|x|; of a complex number its modulus."""
        return self._unary("abs", operand)

    def acos(self, operand: OperandLike) -> XlaOp:
        """The inverse cosine."""
        return self._unary("acos", operand)

    def acosh(self, operand: OperandLike) -> XlaOp:
        """The inverse hyperbolic cosine."""
        return self._unary("acosh", operand)

    def asin(self, operand: OperandLike) -> XlaOp:
        """The inverse sine."""
        return self._unary("asin", operand)

    def asinh(self, operand: OperandLike) -> XlaOp:
        """The inverse hyperbolic sine."""
        return self._unary("asinh", operand)

    def atanh(self, operand: OperandLike) -> XlaOp:
        """The inverse hyperbolic tangent."""
        return self._unary("atanh", operand)

    def cbrt(self, operand: OperandLike) -> XlaOp:
        """The cube root."""
        return self._unary("cbrt", operand)

    def ceil(self, operand: OperandLike) -> XlaOp:
        """The smallest integral value that is not below x."""
        return self._unary("ceil", operand)

    def clz(self, operand: OperandLike) -> XlaOp:
        """The number of leading zero bits."""
        return self._unary("count-leading-zeros", operand)

    def cos(self, operand: OperandLike) -> XlaOp:
        """The cosine."""
        return self._unary("cosine", operand)

    def cosh(self, operand: OperandLike) -> XlaOp:
        """The hyperbolic cosine."""
        return self._unary("cosh", operand)

    def erf(self, operand: OperandLike) -> XlaOp:
        """The error function."""
        return self._unary("erf", operand)

    def exp(self, operand: OperandLike) -> XlaOp:
        """e to the power of x."""
        return self._unary("exponential", operand)

    def expm1(self, operand: OperandLike) -> XlaOp:
        """e^x - 1."""
        return self._unary("exponential-minus-one", operand)

    def floor(self, operand: OperandLike) -> XlaOp:
        """The largest integral value that is not above x."""
        return self._unary("floor", operand)

    def imag(self, operand: OperandLike) -> XlaOp:
        """The imaginary part; 0 of a real number."""
        return self._unary("imag", operand)

    def is_finite(self, operand: OperandLike) -> XlaOp:
        """Whether x is neither infinite nor NaN: pred."""
        return self._unary("is-finite", operand)

    def log(self, operand: OperandLike) -> XlaOp:
        """The natural logarithm."""
        return self._unary("log", operand)

    def log1p(self, operand: OperandLike) -> XlaOp:
        """ln(1 + x)."""
        return self._unary("log-plus-one", operand)

    def logistic(self, operand: OperandLike) -> XlaOp:
        """1 / (1 + e^-x)."""
        return self._unary("logistic", operand)

    def neg(self, operand: OperandLike) -> XlaOp:
        """-x."""
        return self._unary("negate", operand)

    def not_(self, operand: OperandLike) -> XlaOp:
        """Not of pred, every bit inverted of integers."""
        return self._unary("not", operand)

    def population_count(self, operand: OperandLike) -> XlaOp:
        """The number of bits that are set."""
        return self._unary("popcnt", operand)

    def real(self, operand: OperandLike) -> XlaOp:
        """The real part; a real number itself."""
        return self._unary("real", operand)

    def round(self, operand: OperandLike) -> XlaOp:
        """To the nearest integral value, halves away from zero."""
        return self._unary("round-nearest-afz", operand)

    def round_nearest_even(self, operand: OperandLike) -> XlaOp:
        """To the nearest integral value, halves to even."""
        return self._unary("round-nearest-even", operand)

    def rsqrt(self, operand: OperandLike) -> XlaOp:
        """1 / sqrt(x)."""
        return self._unary("rsqrt", operand)

    def sign(self, operand: OperandLike) -> XlaOp:
        """-1, -0, +0, 1 or NaN."""
        return self._unary("sign", operand)

    def sin(self, operand: OperandLike) -> XlaOp:
        """The sine."""
        return self._unary("sine", operand)

    def sinh(self, operand: OperandLike) -> XlaOp:
        """The hyperbolic sine."""
        return self._unary("sinh", operand)

    def sqrt(self, operand: OperandLike) -> XlaOp:
        """The square root."""
        return self._unary("sqrt", operand)

    def tan(self, operand: OperandLike) -> XlaOp:
        """The tangent."""
        return self._unary("tan", operand)

    def tanh(self, operand: OperandLike) -> XlaOp:
        """The hyperbolic tangent."""
        return self._unary("tanh", operand)

    def logical_not(self, operand: OperandLike) -> XlaOp:
        """`not_` under the name of the older pages."""
        return self.not_(operand)
