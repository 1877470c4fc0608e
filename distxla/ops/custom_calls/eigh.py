"""`Eigh`, which XLA expands on every backend."""

from __future__ import annotations

import re

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.lapack_calls import lapack_call
from distxla.ops.custom_calls.qr import matrices, widened
from distxla.ops.custom_calls.target import Call, target

_CONFIG = re.compile(r"\s*([+-]?\d+)\s*,\s*[+-]?\d+\s*,\s*[+-]?\d+\s*,\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")


@target("Eigh")
class Eigh(ExpandedTarget):
    """Eigenvectors (columns) and eigenvalues of a Hermitian matrix, ascending; one triangle alone is read.

    XLA iterates until `tol`, at most `max_iter` sweeps; here LAPACK computes, to full precision. Eigenvectors are
    unique up to a factor of magnitude 1, which is LAPACK's. Eigenvalues that XLA is not asked to sort, which it gives
    in no order of their own, are ascending, too. A NaN or an infinity gives NaN alone.

    Shapes: T[.., n, n] -> (T[.., n, n], R[.., n]), T a float or complex type, R the real one.
    Configuration: "lower,sort_eigenvalues,max_iter,tol", numbers; lower: 0 for the upper triangle.
    Source: XLA's EighExpander.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        kind = matrices(call, 1)
        text = call.instruction.backend_config or ""
        config = _CONFIG.fullmatch(text)
        if config is None:
            raise ConfigError(f"backend_config is {text!r}, not lower,sort_eigenvalues,max_iter,tol in numbers")
        (a,) = widened(build, *operands)
        shape = build.shape(a)
        *batch, n, columns = shape.dims
        if n != columns:
            raise ConfigError(f"takes square matrices, the operand is {call.operands[0]}")
        values = Shape(shape.dtype.real_part, (*batch, n))
        given = Shape.tuple((shape, values, Shape(S32, tuple(batch))))
        triangle = "L" if int(config[1]) else "U"
        found = lapack_call(build, "syevd", f'{{mode = "V", uplo = "{triangle}"}}', given, a)
        return build.join(
            build.convert(build.element(found, 0), kind), build.convert(build.element(found, 1), kind.real_part)
        )
