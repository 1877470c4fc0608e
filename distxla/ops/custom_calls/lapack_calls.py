"""`lapack_call`: a call of a LAPACK routine by its name without the letter, for targets that are executed as one."""

from __future__ import annotations

from distxla.ir.shape import Shape
from distxla.ops.custom_calls.expanded import CallBuild
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.support.lapack import LETTERS

_NO_SYMMETRIC = {  # where complex numbers have routines of other names
    "orgqr": {"c": "ungqr", "z": "ungqr"},
    "ormqr": {"c": "unmqr", "z": "unmqr"},
    "syevd": {"c": "heevd", "z": "heevd"},
    "sytrd": {"c": "hetrd", "z": "hetrd"},
}


def lapack_call(build: CallBuild, routine: str, config: str, shape: Shape, *operands: str) -> str:
    """The call of a LAPACK routine on operands of one of its four types; ConfigError where they are of another."""
    element_type = build.shape(operands[0]).dtype.name
    if element_type not in LETTERS:
        raise ConfigError(f"solves in f32, f64, c64 and c128, not in {element_type}")
    letter = LETTERS[element_type]
    routine = _NO_SYMMETRIC.get(routine, {}).get(letter, routine)
    return build.custom_call(f"lapack_{letter}{routine}_ffi", config, shape.without_layout(), *operands)
