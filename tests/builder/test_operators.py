"""XlaOp's operators, constants on either side, indexing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.ir.element_type import BF16, DATA_TYPES, F32, PRED, S32, ElementType
from distxla.oracle.lockstep import run_reference

Array = np.ndarray[Any, Any]
X = np.array([[1.5, -2.0, 3.0], [-4.0, 5.5, 6.0]], np.float32)
N = np.array([7, -7, 12, -12], np.int32)
M = np.array([2, 2, -5, -5], np.int32)
P, Q = np.array([True, True, False]), np.array([True, False, False])


def run(program: Callable[..., Any], *arguments: Any) -> Any:
    """What a program gives for arrays, as NumPy; a tuple for several results."""
    b = dx.XlaBuilder("program")
    found = program(*(b.parameter(k, np.asarray(a)) for k, a in enumerate(arguments)))
    b.build(b.tuple(found) if isinstance(found, tuple | list) else found)
    (outs,) = run_reference(b.build(), [[np.asarray(a) for a in arguments]], Counts(1, 1))
    return outs[0] if len(outs) == 1 else tuple(outs)


# NumPy does the same on its own arrays
SAME_AS_NUMPY: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("add", operator.add, (X, X)),
    ("sub", operator.sub, (X, X[::-1])),
    ("mul", operator.mul, (X, X)),
    ("truediv", operator.truediv, (X, X[::-1])),
    ("pow", operator.pow, (np.abs(X), X)),
    ("floordiv", operator.floordiv, (N, M)),
    ("floordiv of floats", operator.floordiv, (X, X[::-1])),
    ("neg", operator.neg, (X,)),
    ("pos", operator.pos, (X,)),
    ("abs", abs, (X,)),
    ("invert", operator.invert, (N,)),
    ("invert pred", operator.invert, (P,)),
    ("and", operator.and_, (N, M)),
    ("or", operator.or_, (P, Q)),
    ("xor", operator.xor, (N, M)),
    ("lshift", operator.lshift, (N, np.array([1, 2, 3, 4], np.int32))),
    ("rshift signed", operator.rshift, (N, np.array([1, 2, 1, 2], np.int32))),
    ("rshift unsigned", operator.rshift, (N.view(np.uint32), np.array([1, 2, 1, 2], np.uint32))),
    ("eq", operator.eq, (N, N * np.int32([1, 1, -1, 1]))),
    ("ne", operator.ne, (N, M)),
    ("lt", operator.lt, (N, M)),
    ("le", operator.le, (N, M)),
    ("gt", operator.gt, (N, M)),
    ("ge", operator.ge, (N, M)),
    ("matmul", operator.matmul, (X, X.T)),
    ("matmul of vectors", operator.matmul, (X[0], X[1])),
    ("matmul of batches", operator.matmul, (np.stack([X, X]), np.stack([X.T, 2 * X.T]))),
    ("number right", lambda x: x + 1, (X,)),
    ("number left", lambda x: 1 - x, (X,)),
    ("array right", lambda x: x / np.array([[1, 2, 4]], np.float32), (X,)),
    ("array left", lambda x: np.array([[1, 2, 4]], np.float32) * x, (X,)),
    ("NumPy scalar left", lambda x: np.float32(3) - x, (X,)),
    ("number left of pow", lambda x: 2**x, (X,)),
    ("number left of div", lambda x: 6 / x, (X,)),
    ("number left of floordiv", lambda x: 100 // x, (N,)),
    ("number left of shift", lambda x: 1 << x, (np.array([0, 3], np.int32),)),
    ("number left of and", lambda x: 6 & x, (N,)),
    ("bool with pred", lambda p: p & True, (P,)),
    ("comparison with a number", lambda x: x >= 3, (X,)),
    ("number compared", lambda x: x < 3, (X,)),
    ("integer index", lambda x: x[1], (X,)),
    ("negative index", lambda x: x[-1, -2], (X,)),
    ("slices", lambda x: x[:, 1:], (X,)),
    ("strides", lambda x: x[::2, ::2], (X,)),
    ("negative strides", lambda x: x[::-1, ::-2], (X,)),
    ("negative stride from within", lambda x: x[1, 1::-1], (X,)),
    ("empty slice", lambda x: x[:, 2:1], (X,)),
    ("slice beyond the end", lambda x: x[0:9, -2:], (X,)),
    ("ellipsis", lambda x: x[..., 0], (X,)),
    ("new dimension", lambda x: x[:, None, 1:2], (X,)),
    ("ellipsis and new dimension", lambda x: x[None, ..., None], (X,)),
    ("everything", lambda x: x[...], (X,)),
]


@pytest.mark.parametrize(
    ("program", "arguments"), [row[1:] for row in SAME_AS_NUMPY], ids=[r[0] for r in SAME_AS_NUMPY]
)
def test_as_numpy(program: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray(program(*arguments))
    got = run(program, *arguments)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_list_takes_the_operands_type() -> None:
    assert run(lambda x: x * [1, 2, 3, 4] - [1], N).tolist() == [6, -15, 35, -49]


def test_division_and_remainder_of_integers_are_the_pages() -> None:
    """Towards zero and with the dividend's sign, as XLA's operators; `//` is Python's."""
    quotient, rest, floor = run(lambda x, y: (x / y, x % y, x // y), N, M)
    assert quotient.tolist() == [3, -3, -2, 2]
    assert rest.tolist() == [1, -1, 2, -2]
    assert floor.tolist() == [n // m for n, m in zip(N.tolist(), M.tolist(), strict=True)]


def test_parts_of_tuples_and_arrays() -> None:
    b = dx.XlaBuilder("parts")
    x = b.parameter(0, "(f32[2,3], s32[])")
    first, second = x
    assert [p.shape for p in x] == [first.shape, second.shape] == list(x.shape.elements or ())
    assert (len(x), len(first), str(x[-1].shape)) == (2, 2, "s32[]")
    assert [str(row.shape) for row in first] == ["f32[3]", "f32[3]"]
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(IndexError):
        first[2]
    with pytest.raises(IndexError):
        first[0, 0, 0]
    with pytest.raises(TypeError, match="no length"):
        len(second)


def test_properties() -> None:
    b = dx.XlaBuilder("properties")
    x = b.parameter(0, "bf16[2,3]{0,1}", "x")
    assert (x.name, str(x.shape), x.dtype, x.rank, x.shape.dims) == ("x", "bf16[2,3]", BF16, 2, (2, 3))
    assert x.builder is b
    assert repr(x) == "XlaOp(x: bf16[2,3])"


def test_an_operand_has_identity_and_no_truth_value() -> None:
    """`==` is an operation of the program, so membership and truth can't be asked of it."""
    b = dx.XlaBuilder("identity")
    x, y = b.parameter(0, "f32[]"), b.parameter(1, "f32[]")
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2
    assert (x == y).dtype is PRED
    for question in (bool, lambda v: v in [y], lambda v: v and y, lambda v: 0 < v < 1):
        with pytest.raises(TypeError, match="truth value"):
            question(x)
    with pytest.raises(TypeError, match="has no value"):
        np.asarray(x)


# --- constants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element_type", DATA_TYPES, ids=str)
def test_constants_of_every_type(element_type: ElementType) -> None:
    b = dx.XlaBuilder("constants")
    values = np.array([0, 1, 1], bool).astype(element_type.dtype)
    if element_type.name == "f8e8m0fnu":  # has no zero
        values = np.array([2, 1, 1]).astype(element_type.dtype)
    same, stated = b.constant(values), b.constant(values.tolist() if element_type.bits >= 32 else values, element_type)
    assert same.dtype is stated.dtype is element_type
    (outs,) = run_reference(b.build(b.tuple([same, stated])), [[]], Counts(1, 1))
    for out in outs:
        assert out is not None
        assert out.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(1, "s32[]"), (1.5, "f32[]"), (True, "pred[]"), (1j, "c64[]"), ([1, 2], "s32[2]"), ([[1.0], [2]], "f32[2,1]"),
     ([], "s32[0]"), (np.float64(1), "f64[]"), (np.zeros((2, 0), np.int8), "s8[2,0]"),
     (ml_dtypes.bfloat16(2), "bf16[]")],
)  # fmt: skip
def test_types_of_constants(value: Any, wanted: str) -> None:
    assert str(dx.XlaBuilder("types").constant(value).shape) == wanted


@pytest.mark.parametrize(
    ("value", "element_type"),
    [(1.5, "s32"), (300, "s8"), (-1, "u32"), (1j, "f32"), (2, "pred"), (1e300, "f32"), (1000.0, "f8e4m3fn"),
     (8, "s4"), ("x", "f32"), (None, "f32"), ([[1], [2, 3]], "s32"), (2**64, "u64"), (object(), None)],
)  # fmt: skip
def test_constants_that_do_not_fit(value: Any, element_type: str | None) -> None:
    with pytest.raises(dx.VerificationError, match="constant"):
        dx.XlaBuilder("fits").constant(value, element_type)


@pytest.mark.parametrize("element_type", DATA_TYPES, ids=str)
def test_lowest_and_highest_values(element_type: ElementType) -> None:
    b = dx.XlaBuilder("extremes")
    if element_type.is_complex:
        with pytest.raises(dx.VerificationError, match="no lowest"):
            b.min_value(element_type)
        return
    low, high = b.min_value(element_type), b.max_value(element_type)
    (outs,) = run_reference(b.build(b.tuple([low, high])), [[]], Counts(1, 1))
    lowest, highest = (np.asarray(out).astype(np.float64) for out in outs)
    assert lowest < highest or element_type.kind == "pred"
    assert (highest == np.inf) == (element_type.name in ("f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"))


def test_numbers_of_python_take_the_other_operands_type() -> None:
    b = dx.XlaBuilder("weak")
    for number, name in enumerate(("bf16", "s8", "u64", "c64", "f64")):
        x = b.parameter(number, (name, (3,)))
        assert (x + 1).dtype is (1 + x).dtype is x.dtype
    integers = b.iota("s32[3]")
    with pytest.raises(dx.VerificationError, match=r"1\.5 is no constant of s32"):
        integers * 1.5
    with pytest.raises(dx.VerificationError, match=r"element types differ: s32\[3\] and f64"):
        integers + np.zeros(3)
    assert integers.dtype is S32
    assert (b.iota("f32[3]") + 2).dtype is F32
