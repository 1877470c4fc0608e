"""The names of OpenBLAS's functions here, in its C and in its Fortran interface."""

from __future__ import annotations

BLAS_PREFIX = "scipy_"  # of all symbols in scipy-openblas32


def import_name(routine: str) -> str:
    """See `targets.code.CodeTarget.import_name`."""
    library, _, name = routine.partition(".")
    if library == "blas":
        return f"{BLAS_PREFIX}cblas_{name}"
    return f"{BLAS_PREFIX}{name}_" if library == "lapack" else routine
