"""Factorisations and solutions of linear systems: cuSOLVER's and cuBLAS's names for LAPACK's targets."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import ffi_fields
from distxla.ops.custom_calls.lapack_calls import lapack_call
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.expansion import Build
from distxla.ops.triangular_solve import TriangularSolve


class _AsLapack(ExpandedTarget):
    """routine: LAPACK's name."""

    routine: str
    fields: frozenset[str] = frozenset()

    def config(self, call: Call) -> str:
        """The configuration of the LAPACK target, as text."""
        return ""

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        ffi_fields(call).only(self.fields)
        steps.operands_required(call, range(1, 9), "arrays")
        return lapack_call(build, self.routine, self.config(call), call.shape, *operands)

    @staticmethod
    def triangle(call: Call) -> str:
        return '"L"' if ffi_fields(call).flag("lower") else '"U"'


@target("cusolver_potrf_ffi")
class Potrf(_AsLapack):
    """LAPACK's ?potrf: Cholesky's factor in the triangle that `lower` names, info."""

    routine = "potrf"
    fields = frozenset({"lower"})

    def config(self, call: Call) -> str:
        return f"{{uplo = {self.triangle(call)}}}"


@target("cusolver_getrf_ffi", "cublas_getrf_batched_ffi")
class Getrf(_AsLapack):
    """LAPACK's ?getrf: L and U with row exchanges, the pivots, info."""

    routine = "getrf"


@target("cusolver_geqrf_ffi", "cublas_geqrf_batched_ffi")
class Geqrf(_AsLapack):
    """LAPACK's ?geqrf: R, the reflectors' vectors and factors."""

    routine = "geqrf"


@target("cusolver_orgqr_ffi")
class Orgqr(_AsLapack):
    """LAPACK's ?orgqr: the first columns of a product of reflectors."""

    routine = "orgqr"


@target("cusolver_ormqr_ffi")
class Ormqr(_AsLapack):
    """LAPACK's ?ormqr: a product of reflectors, or its adjoint, times a matrix, from either side."""

    routine = "ormqr"
    fields = frozenset({"left", "transpose"})

    def config(self, call: Call) -> str:
        options = ffi_fields(call)
        return ", ".join(f"{name} = {str(options.flag(name)).lower()}" for name in sorted(self.fields)).join("{}")


@target("cusolver_sytrd_ffi")
class Sytrd(_AsLapack):
    """LAPACK's ?sytrd: the tridiagonal form of a Hermitian matrix, info."""

    routine = "sytrd"
    fields = frozenset({"lower"})

    def config(self, call: Call) -> str:
        return f"{{uplo = {self.triangle(call)}}}"


@target("cusolver_syevd_ffi")
class Syevd(_AsLapack):
    """LAPACK's ?syevd: eigenvectors and eigenvalues of a Hermitian matrix, info."""

    routine = "syevd"
    fields = frozenset({"lower", "algorithm"})

    def config(self, call: Call) -> str:
        return f'{{mode = "V", uplo = {self.triangle(call)}}}'


@target("cusolver_gesvdj_ffi", "cusolver_gesvdp_ffi")
class Gesvd(ExpandedTarget):
    """LAPACK's ?gesdd: singular values, U and V, which is not transposed as LAPACK has it, info.

    As many columns of U and V are computed as the text states: all, or as many as there are singular values.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        ffi_fields(call).only({"compute_uv", "full_matrices"})
        steps.operands_required(call, [1], "one matrix")
        matrix, shapes = build.shape(operands[0]), steps.result_shapes(call)
        if matrix.rank < 2 or len(shapes) != 5 or not all(shape.is_array for shape in shapes):
            raise ConfigError(f"gives a matrix, singular values, U, V and info, the text says {call.shape}")
        *batch, m, n = matrix.dims
        u, v = shapes[2:4]
        mode = "A" if (u.dims[-1:], v.dims[-1:]) == ((m,), (n,)) else "S"
        adjoint = v.with_dims((*batch, *v.dims[-1:], n))
        given = Shape.tuple((*shapes[:3], adjoint, shapes[4]))
        found = lapack_call(build, "gesdd", f'{{mode = "{mode}"}}', given, *operands)
        parts = [build.element(found, k) for k in range(5)]
        rank = matrix.rank
        parts[3] = _conjugate(build, build.transpose(parts[3], (*range(rank - 2), rank - 1, rank - 2)))
        return build.join(*parts)


@target("cusparse_gtsv2_ffi")
class Gtsv2(ExpandedTarget):
    """LAPACK's ?gtsv: the solution of a tridiagonal system."""

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        ffi_fields(call).only(())
        steps.operands_required(call, [4], "three diagonals and a right side")
        shapes = [build.shape(operand) for operand in operands]
        given = Shape.tuple((*shapes, Shape(S32, shapes[0].dims[:-1])))
        return build.element(lapack_call(build, "gtsv", "", given, *operands), 3)


def _conjugate(build: Build, x: str) -> str:
    """x itself where it is real."""
    if not build.shape(x).dtype.is_complex:
        return x
    return build.compute("complex", build.compute("real", x), build.compute("negate", build.compute("imag", x)))


@target("__cusolver$cholesky")
class Cholesky(ExpandedTarget):
    """Cholesky's factor as XLA's own backend calls it: the factor, a workspace of its type, info.

    Source:  XLA, gpusolver_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = ffi_fields(call)
        fields.only({"lower"})
        steps.operands_required(call, [1], "one array")
        shapes = steps.result_shapes(call)
        if len(shapes) != 3 or not shapes[1].is_array:
            raise ConfigError(f"gives a factor, a workspace and info, the text says {call.shape}")
        config = f"{{uplo = {_AsLapack.triangle(call)}}}"
        found = lapack_call(build, "potrf", config, Shape.tuple((shapes[0], shapes[2])), *operands)
        workspace = build.constant(0, shapes[1].dtype, shapes[1].dims)
        return build.join(build.element(found, 0), workspace, build.element(found, 1))


@target("__cublas$triangularSolve")
class TriangularSolveCall(ExpandedTarget):
    """A triangular-solve with the options that the configuration names, and a workspace.

    Source:  XLA, triangular_solve_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = ffi_fields(call)
        fields.only({"left_side", "lower", "unit_diagonal", "transpose_a"})
        kinds = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
        steps.operands_required(call, [2], "a triangle and a right side")
        op = TriangularSolve(
            left_side=fields.flag("left_side"),
            lower=fields.flag("lower"),
            unit_diagonal=fields.flag("unit_diagonal"),
            transpose_a=fields.choice("transpose_a", kinds),
        )
        return steps.joined(call, build, [build.add(op, *operands)])


@target("cu_lu_pivots_to_permutation")
class PivotsToPermutation(ExpandedTarget):
    """The permutation that row exchanges make of 0 to n - 1, one after the other: s32[.., k] -> s32[.., n].

    Pivots count from 0; those out of range are moved into it.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        ffi_fields(call).only({"permutation_size"})
        steps.operands_required(call, [1], "one array of pivots")
        pivots, result = build.shape(operands[0]), call.shape
        fits = result.is_array and result.rank == pivots.rank > 0 and result.dims[:-1] == pivots.dims[:-1]
        fits = fits and result.dims[-1] >= pivots.dims[-1]
        if not fits or pivots.dtype is not S32 or result.dtype is not S32:
            raise ConfigError(f"makes s32[.., n] of pivots s32[.., k], not {result} of {pivots}")
        last = result.rank - 1
        places, numbers = build.iota(S32, result.dims, last), build.iota(S32, pivots.dims, last)
        low, high = (build.constant(n, S32, pivots.dims) for n in (0, result.dims[-1] - 1))
        exchanges = build.compute("clamp", low, operands[0], high)
        initial = (build.constant(0, S32), exchanges, places, numbers, places)

        def goes_on(inner: Build, state: Sequence[str]) -> str:
            return inner.compare("LT", state[0], inner.constant(pivots.dims[-1], S32))

        def step(inner: Build, state: Sequence[str]) -> Sequence[str]:
            row, exchanges, at, count, permutation = state
            pivot = _picked(inner, inner.compare("EQ", count, inner.broadcast(row, pivots.dims)), exchanges)
            is_row = inner.compare("EQ", at, inner.broadcast(row, result.dims))
            is_pivot = inner.compare("EQ", at, inner.broadcast(pivot, result.dims, range(last)))
            numbers = [
                inner.broadcast(_picked(inner, place, permutation), result.dims, range(last))
                for place in (is_row, is_pivot)
            ]
            swapped = inner.select(is_row, numbers[1], inner.select(is_pivot, numbers[0], permutation))
            return inner.compute("add", row, inner.constant(1, S32)), exchanges, at, count, swapped

        return build.loop(initial, goes_on, step)[4]


def _picked(build: Build, places: str, numbers: str) -> str:
    """The one number of every row whose place is marked."""
    zeros = steps.like(build, 0, numbers)
    return build.sum(build.select(places, numbers, zeros), [build.shape(numbers).rank - 1])
