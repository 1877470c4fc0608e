"""Element-wise instructions of a random program."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.fuzz.xla.exact_values import COMPLEX, ELEMENTS, INTEGERS, SIGNED, Value, is_inexact_type
from tests.fuzz.xla.writer import Writer, is_possible, sized
from tests.tolerances import TRANSCENDENTAL_ULPS

# XLA CPU's own functions are off by as much; docs/accuracy.md has the errors of ours.
XLA_ULPS = 16
MOST_OF_FUNCTIONS = 16.0  # arguments of functions: beyond it their results are subnormal, infinite or one
EXPONENT_BITS = {"f32": 8, "f64": 11, "f16": 5, "bf16": 8}
FUNCTIONS = (
    *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "sine", "cosine", "tan"),
    *("sqrt", "rsqrt", "cbrt", "erf"),
)


def _of_numbers(v: Value) -> bool:
    return v.is_exact and v.element != "pred"


def binary(w: Writer) -> None:
    """add, subtract, multiply, maximum, minimum of anything; bits and quotients of integers."""
    a = w.some(_of_numbers)
    b = w.need(a.element, a.dims)
    opcodes = ["add", "subtract", "multiply"]
    if a.element not in COMPLEX:
        opcodes += ["maximum", "minimum"]
    if a.element in INTEGERS:
        opcodes += ["and", "or", "xor", "divide", "remainder", "shift-left", "shift-right-logical"]
        opcodes += ["shift-right-arithmetic"]
    opcode = w.random.choice(opcodes)
    factor = 2 if a.element in COMPLEX else 1
    if opcode in ("divide", "remainder"):  # of zero by itself XLA makes one
        b = w.constant(a.element, a.dims, [n for n in range(-6, 7) if n])
    if opcode == "multiply":
        made = sized(a, bound=factor * a.bound * b.bound, step=a.step * b.step)
    elif opcode in ("add", "subtract"):
        low = opcode == "subtract" and a.element in INTEGERS and a.element not in SIGNED
        made = sized(a, bound=math.inf if low else a.bound + b.bound, step=min(a.step, b.step))
    elif opcode in ("maximum", "minimum"):
        made = sized(a, bound=max(a.bound, b.bound), step=min(a.step, b.step))
    else:
        made = sized(a, bound=math.inf)
    if is_possible(made):
        w.add("v", made, opcode, [a, b])


def unary(w: Writer) -> None:
    a = w.some(lambda v: v.is_exact)
    if a.element == "pred":
        w.add("v", a, "not", [a])
        return
    choices = ["negate"]
    if a.element not in COMPLEX:
        choices += ["abs", "sign"]
    if a.element in INTEGERS:
        choices += ["not", "popcnt", "count-leading-zeros"]
    elif a.element not in COMPLEX:
        choices += ["floor", "ceil", "round-nearest-even", "round-nearest-afz"]
    opcode = w.random.choice(choices)
    if opcode in ("abs", "sign") and a.element in INTEGERS and a.element not in SIGNED:
        return  # XLA has none of these
    if opcode in ("floor", "ceil", "round-nearest-even", "round-nearest-afz"):
        made = replace(a, bound=math.ceil(a.bound), step=max(1.0, a.step))
    elif opcode == "sign":
        made = replace(a, bound=1.0, step=1.0)
    elif opcode in ("popcnt", "count-leading-zeros"):
        made = sized(a, bound=64.0)
    elif a.element in INTEGERS:
        made = sized(a, bound=math.inf)
    else:
        made = a
    if is_possible(made):
        w.add("v", made, opcode, [a])


def compare(w: Writer) -> None:
    a = w.some(lambda v: v.is_exact)
    b = w.need(a.element, a.dims)
    directions = ["EQ", "NE"] if a.element in COMPLEX else ["EQ", "NE", "LT", "LE", "GT", "GE"]
    made = Value("", "pred", a.dims, 1.0)
    w.add("v", made, "compare", [a, b], f"direction={w.random.choice(directions)}")


def select(w: Writer) -> None:
    a = w.some()
    b = w.need(a.element, a.dims)
    p = w.need("pred", () if w.random.random() < 0.3 else a.dims)
    if p.dims != a.dims:
        p = w.add("wide", p.like("", a.dims), "broadcast", [p], "dimensions={}")
    made = replace(a, bound=max(a.bound, b.bound), step=min(a.step, b.step))
    if is_possible(made) or not a.is_exact:
        w.add("v", made, "select", [p, a, b])


def logic(w: Writer) -> None:
    a = w.some(lambda v: v.element == "pred", ["pred"])
    b = w.need("pred", a.dims)
    w.add("v", a, w.random.choice(["and", "or", "xor"]), [a, b])


def clamp(w: Writer) -> None:
    a = w.some(lambda v: _of_numbers(v) and v.element not in COMPLEX)
    low, high = (w.need(a.element, () if w.random.random() < 0.7 else a.dims) for _ in range(2))
    if low.dims != high.dims and (low.dims or high.dims):
        low, high = w.need(a.element, a.dims), w.need(a.element, a.dims)
    made = sized(a, bound=max(a.bound, low.bound, high.bound), step=min(a.step, low.step, high.step))
    if is_possible(made):
        w.add("v", made, "clamp", [low, a, high])


def convert(w: Writer) -> None:
    """To a type that has all the numbers; integers wrap around."""
    a = w.some(lambda v: v.is_exact and v.element not in COMPLEX)
    new = w.random.choice([e for e in ELEMENTS if e not in (a.element, "pred", *COMPLEX)])
    if is_inexact_type(a.element) and new in INTEGERS:
        made = sized(a, element=new, bound=a.bound)
        if made.bound != a.bound or (new not in SIGNED):
            return  # numbers that don't fit are saturated: tests/ops/test_matrix.py
    else:
        made = sized(a, element=new, bound=1.0 if a.element == "pred" else a.bound)
        if a.element == "pred":
            made = replace(made, step=1.0)
        elif new in INTEGERS and new not in SIGNED and a.element in SIGNED:
            made = sized(made, bound=math.inf)
    if is_possible(made):
        w.add("v", made, "convert", [a])


def complex_parts(w: Writer) -> None:
    a = w.pick(lambda v: v.is_exact and v.element in COMPLEX)
    if a is not None and w.random.random() < 0.6:
        part = replace(a, element="f32" if a.element == "c64" else "f64")
        w.add("v", part, w.random.choice(["real", "imag"]), [a])
        return
    a = w.some(lambda v: v.is_exact and v.element in ("f32", "f64"), ["f32", "f64"])
    b = w.need(a.element, a.dims)
    made = replace(a, element="c64" if a.element == "f32" else "c128")
    w.add("v", replace(made, bound=max(a.bound, b.bound), step=min(a.step, b.step)), "complex", [a, b])


def bitcast(w: Writer) -> None:
    """Integers of one width, or bytes."""
    a = w.some(lambda v: v.is_exact and v.element in INTEGERS, INTEGERS)
    same = {"s": "u", "u": "s"}[a.element[0]] + a.element[1:]
    if a.element[1:] == "32" and w.random.random() < 0.4:
        made = sized(a, element="u8", dims=(*a.dims, 4), bound=math.inf)
    else:
        made = sized(a, element=same, bound=math.inf)
    if is_possible(made):
        w.add("v", made, "bitcast-convert", [a])


def reduce_precision(w: Writer) -> None:
    """Multiples of a step stay multiples of it; what is rounded up is a power of two at most."""
    a = w.some(lambda v: v.is_exact and v.element in EXPONENT_BITS, list(EXPONENT_BITS))
    made = replace(a, bound=2 * a.bound)
    if is_possible(made):
        bits = f"exponent_bits={EXPONENT_BITS[a.element]}, mantissa_bits={w.random.randint(1, 9)}"
        w.add("v", made, "reduce-precision", [a], bits)


def function(w: Writer) -> None:
    """A function whose result is rounded: no instruction computes with it, it is only moved."""
    a = w.some(lambda v: v.is_exact and v.element in ("f32", "f64"), ["f32", "f64"])
    a = w.within(a, MOST_OF_FUNCTIONS, 0.0)
    made = replace(a, ulps=TRANSCENDENTAL_ULPS[a.element] + XLA_ULPS, bound=math.inf)
    if w.random.random() < 0.25:
        # not zero: beside another zero XLA's atan2 is sometimes NaN
        b = w.constant(a.element, a.dims, [n for n in range(-6, 7) if n])
        w.add("v", made, w.random.choice(["divide", "atan2", "power"]), [a, b])
        return
    w.add("v", made, w.random.choice(FUNCTIONS), [a])


MAKERS = (
    *(binary, binary, binary, binary, unary, unary, compare, select, select, logic, clamp, convert, convert),
    *(complex_parts, bitcast, reduce_precision, function, function),
)
