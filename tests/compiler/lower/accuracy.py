"""How far emitted functions are from the right result; as a program it prints the tables of docs/accuracy.md.

References come from a wider type: f64 for f16 and bf16, the C library's long double (64 bits of mantissa) for f32, f64
and, by parts, for complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from distxla.ir.element_type import element_type
from tests.compiler.lower.harness import Kernel, elementwise

Array = np.ndarray[Any, Any]
DOCUMENT = Path(__file__).parents[3] / "docs" / "accuracy.md"
REAL_TYPES = ("f32", "f64", "f16", "bf16")
COMPLEX_TYPES = ("c64", "c128")


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x.real < 0, e, 1) / (1 + e) if x.dtype.kind == "f" else 1 / (1 + np.exp(-x))


def _erf(x: Array) -> Array:
    """exp(-x^2) times a series of positive terms; linear near zero, 1 from 6.5 on."""
    scale = 2 / np.sqrt(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16))
    result = np.where(np.abs(x) < 1, x * scale, np.where(np.isnan(x), x, np.sign(x)))
    inside = (np.abs(x) > 1e-10) & (np.abs(x) < 6.5)
    a = x[inside]
    term = total = a
    for k in range(1, 150):
        term = term * (2 * a * a / (2 * k + 1))
        total = total + term
    result[inside] = scale * total * np.exp(-a * a)
    return result


def _rounded_away(x: Array) -> Array:
    towards = np.trunc(x)
    return np.copysign(np.where(np.abs(x - towards) >= 0.5, towards + np.sign(x), towards), x)


def _log1p(x: Array) -> Array:
    if x.dtype.kind == "f":
        return np.log1p(x)
    near = np.log1p(x.real * (x.real + 2) + x.imag * x.imag) / 2
    away = np.log(np.hypot(1 + x.real, x.imag))
    return _complex(np.where(np.abs(x) < 0.5, near, away), np.arctan2(x.imag, 1 + x.real))


def _expm1(x: Array) -> Array:
    if x.dtype.kind == "f":
        return np.expm1(x)
    real = np.expm1(x.real) * np.cos(x.imag) - 2 * np.sin(x.imag / 2) ** 2
    return _complex(real, np.exp(x.real) * np.sin(x.imag))


def _complex(real: Array, imag: Array) -> Array:
    result = np.empty(real.shape, np.clongdouble)
    result.real, result.imag = real, imag
    return result


UNARY: dict[str, Callable[[Array], Array]] = {
    "exponential": np.exp,
    "exponential-minus-one": _expm1,
    "log": np.log,
    "log-plus-one": _log1p,
    "logistic": _logistic,
    "tanh": np.tanh,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "cbrt": np.cbrt,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {"power": np.power, "atan2": np.arctan2, "remainder": np.fmod}
EXACT: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round-nearest-even": np.rint,
    "round-nearest-afz": _rounded_away,
}
REAL_ONLY = ("erf", "cbrt")

_SPECIAL = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, 88.72, 88.73,
    -87.3, -103.9, -104.1, 89.4, 709.78, 709.79, 710.4, -745.1, -745.2, 0.5, -0.5, 1.5, 2.5, 0.49999997, 8388609.0,
    4503599627370497.5,
    # multiples of pi/2 come no nearer to an f64 or f32 than these
    6381956970095103 * 2.0**797, 16367173 * 2.0**72, 1e22, 1e30, 2.0**1023,
)  # fmt: skip


def samples(kind: str) -> Array:
    """All f16 or bf16; else all exponents, dense stretches where functions turn, neighbours of multiples of pi/2."""
    dtype = element_type(kind).dtype
    if dtype.itemsize == 2:
        return np.arange(1 << 16).astype(np.uint16).view(dtype)
    rng = np.random.default_rng(0)
    width = 8 * dtype.itemsize
    patterns = rng.integers(0, 1 << width, 1 << 17, dtype=f"u{dtype.itemsize}").view(dtype)
    stretches = [rng.uniform(-b, b, 1 << 15) for b in (1, 1, 3, 8, 20, 45, 104, 750, 1e5)]
    near_one = [s * (1 + rng.uniform(-1, 1, 1 << 14) * 2.0**-e) for e in (4, 12, 23) for s in (1, -1)]
    turns = rng.integers(1, 1 << 40, 1 << 14) * (np.pi / 2)
    powers = np.ldexp(rng.uniform(-1, 1, 1 << 14), rng.integers(-1074, 1024, 1 << 14))
    with np.errstate(all="ignore"):
        return np.concatenate(
            [p.astype(dtype) for p in (patterns, *stretches, *near_one, turns, powers, np.array(_SPECIAL))]
        )


def pairs(kind: str, opcode: str) -> tuple[Array, Array]:
    """Arguments whose results spread over the whole range, and all pairs of special ones."""
    rng = np.random.default_rng(1)
    dtype, n = element_type(kind).dtype, 1 << 13
    tiny, huge = (-700, 700) if kind == "f64" else (-80, 80)
    spread = [np.exp(rng.uniform(tiny, huge, n)) * rng.choice([-1, 1], n) for _ in range(2)]
    found = [
        spread,
        [rng.uniform(-1, 1, 4 * n), rng.uniform(-1, 1, 4 * n)],
        [rng.uniform(-9, 9, n).round(), rng.uniform(-20, 20, n).round()],
    ]
    if opcode == "power":
        for base in (np.abs(spread[0]), rng.uniform(0.5, 2, n), 1 + rng.uniform(-1, 1, n) * 1e-5, rng.uniform(0, 9, n)):
            found.append([base, 1.03 * rng.uniform(tiny, huge, n) / np.log(base)])
    special = np.array([*_SPECIAL, 2, -2, 3, -3, 0.1, 1e300, 2.0**53 + 2, 1 - 2.0**53])
    found.append([a.ravel() for a in np.meshgrid(special, special)])
    with np.errstate(all="ignore"):
        left, right = (np.concatenate([pair[k] for pair in found]).astype(dtype) for k in range(2))
    if opcode == "remainder" and kind == "f64":
        # the long double's remainder of quotients beyond its mantissa is exact, too, but takes as many steps
        with np.errstate(all="ignore"):
            near = np.abs(left / right) < 1e300
        left, right = left[near], right[near]
    return left, right


def complex_samples(kind: str) -> Array:
    """Moduli from 1e-6 to 20 in all directions, near the axes, near 1 and near the unit circle."""
    rng = np.random.default_rng(2)
    n = 1 << 13
    dtype: Any = element_type(kind).dtype
    ordinary = np.exp(rng.uniform(-14, 3, n)) * np.exp(2j * np.pi * rng.random(n))
    close = 1 + (rng.standard_normal(n) + 1j * rng.standard_normal(n)) * np.exp(rng.uniform(-14, 0, n))
    circle = np.exp(2j * np.pi * rng.random(n)) * (1 + rng.standard_normal(n) * 1e-4)
    axes = rng.uniform(-3, 3, n) + 1j * np.exp(rng.uniform(-14, 0, n))
    return np.concatenate([ordinary, close, circle, axes, axes * 1j]).astype(dtype)


def ulps(got: Array, wanted: Array) -> Array:
    """Distance from a wider reference in units of the last place; infinite for another NaN, infinity or zero's sign."""
    info: Any = _format(got.dtype)
    with np.errstate(all="ignore"):
        rounded = (
            wanted.astype(np.float64).astype(got.dtype) if wanted.dtype == np.longdouble else wanted.astype(got.dtype)
        )
        near, value = rounded.astype(np.float64), got.astype(np.float64)
        exponent = np.frexp(np.abs(wanted))[1]
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant))
        distance = np.abs(got.astype(np.longdouble) - wanted) / unit
        equal = (value == near) & (np.signbit(value) == np.signbit(near)) | (np.isnan(value) & np.isnan(near))
        distance = np.where(equal, np.minimum(np.nan_to_num(distance, nan=0, posinf=0), 0.5), distance)
        wrong = (np.isinf(value) ^ np.isinf(near)) & ~_both_huge(value, near, info) | (np.isnan(value) ^ np.isnan(near))
        return np.where(
            wrong | (~equal & (value == 0) & (near == 0)), np.inf, np.where(np.isinf(near) & ~equal, 1, distance)
        )


def _both_huge(value: Array, near: Array, info: Any) -> Array:
    """One is infinite, the other the largest number: neighbours."""
    largest = float(info.max)
    return (np.abs(value) >= largest) & (np.abs(near) >= largest) & (np.sign(value) == np.sign(near))


def _format(dtype: np.dtype[Any]) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype)


def run(opcode: str, kind: str, *arguments: Array) -> tuple[Array, Kernel]:
    shape = f"{kind}[{arguments[0].size}]"
    names = ", ".join(f"p{k}" for k in range(len(arguments)))
    kernel = Kernel(elementwise(f"{opcode}({names})", [shape] * len(arguments), shape))
    return kernel(*arguments), kernel


def arguments_of(opcode: str, kind: str) -> tuple[Array, ...]:
    if kind in COMPLEX_TYPES:
        return (complex_samples(kind),)
    return pairs(kind, opcode) if opcode in BINARY else (samples(kind),)


def right(opcode: str, arguments: tuple[Array, ...]) -> Array:
    """The result in a wider type."""
    function: Any = {**UNARY, **BINARY, **EXACT}[opcode]
    wide = np.clongdouble if arguments[0].dtype.kind == "c" else np.longdouble
    with np.errstate(all="ignore"):
        if arguments[0].dtype.itemsize == 2:
            wide = np.float64
        return np.asarray(function(*(a.astype(wide) for a in arguments)))


def distances(opcode: str, kind: str) -> tuple[Array, tuple[Array, ...], Array, Kernel]:
    """(ULP, arguments, results, kernel); of complex numbers multiples of the epsilon times the modulus."""
    arguments = arguments_of(opcode, kind)
    got, kernel = run(opcode, kind, *arguments)
    wanted = right(opcode, arguments)
    if kind not in COMPLEX_TYPES:
        return ulps(got, wanted), arguments, got, kernel
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.clongdouble) - wanted) / np.abs(wanted) / np.finfo(got.dtype).eps
        return np.where(np.isfinite(wanted), error, 0), arguments, got, kernel


def stated() -> dict[tuple[str, str], float]:
    """The tables of docs/accuracy.md, by opcode and element type."""
    bounds: dict[tuple[str, str], float] = {}
    columns: list[str] = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [c.strip(" `") for c in line.strip("|").split("|")]
        if line.startswith("| opcode"):
            columns = cells[1:]
        elif not line.startswith("|"):
            columns = []
        elif line.startswith("| `"):
            bounds |= {(cells[0], kind): float(cell) for kind, cell in zip(columns, cells[1:])}
    return bounds


def _table(kinds: tuple[str, ...], opcodes: list[str]) -> list[str]:
    lines = [f"| opcode | {' | '.join(kinds)} |", "|---|" + "---|" * len(kinds)]
    for opcode in opcodes:
        cells = []
        for kind in kinds:
            measured = np.ceil(float(distances(opcode, kind)[0].max()) * 1.03 * 100) / 100
            exact = kind in REAL_TYPES and measured <= 0.52 and (opcode == "sqrt" or kind in ("f16", "bf16"))
            cells.append("0.51" if exact else f"{measured:.2f}" if opcode != "remainder" else "0")
        lines.append(f"| `{opcode}` | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(_table(REAL_TYPES, [*UNARY, *BINARY])))
    print()
    print("\n".join(_table(COMPLEX_TYPES, [o for o in UNARY if o not in REAL_ONLY])))
