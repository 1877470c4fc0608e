"""What the messages of JaxRuntimeError begin with: as of XLA's CPU client."""

from __future__ import annotations

import pytest

from distxla.errors import (
    ArgumentError,
    ClusterError,
    CompileError,
    DeadlockError,
    ExecutionError,
    InternalError,
    OutOfMemoryError,
    PartitioningError,
    UnsupportedOpError,
    VerificationError,
)
from tests.jax.pjrt.served import Served

pytest.importorskip("jax")
from distxla.jax.pjrt.errors import error_of

INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 3, 5, 8, 9, 12, 13
REFUSED = "XLA refuses the module: "


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ArgumentError("a"), INVALID_ARGUMENT),
        (VerificationError("add.C1: a"), INVALID_ARGUMENT),
        (UnsupportedOpError("a"), UNIMPLEMENTED),
        (OutOfMemoryError("a"), RESOURCE_EXHAUSTED),
        (CompileError("a"), INTERNAL),
        (ExecutionError("a"), INTERNAL),
        (InternalError("a"), INTERNAL),
        (DeadlockError("a"), FAILED_PRECONDITION),
        (ClusterError("a"), FAILED_PRECONDITION),
        (PartitioningError(f"{REFUSED}INVALID_ARGUMENT: during context"), INVALID_ARGUMENT),
        (PartitioningError(f"{REFUSED}UNIMPLEMENTED: a"), UNIMPLEMENTED),
        (PartitioningError(f"{REFUSED}NOT_FOUND: a"), NOT_FOUND),
        (PartitioningError(f"{REFUSED}INTERNAL: INVALID_ARGUMENT: a"), INTERNAL),
        (PartitioningError("XLA's partitioner ended with signal SIGABRT: INVALID_ARGUMENT: a"), INTERNAL),
        (ZeroDivisionError("a"), INTERNAL),
    ],
    ids=lambda given: str(given) if isinstance(given, int) else f"{type(given).__name__} {given}"[:60],
)
def test_the_code_of_a_failure(failure: Exception, code: int) -> None:
    assert error_of(failure).code == code


SCRIPTS = {
    "codes": """
from jax.experimental import io_callback

def fails(x):
    raise ValueError("mine")

like = jax.ShapeDtypeStruct((4,), np.float32)
cases = {
    "pure_callback": lambda x: jax.pure_callback(fails, like, x),
    "io_callback": lambda x: io_callback(fails, like, x),
    "ragged result": lambda x: jax.pure_callback(lambda a: np.zeros(7, np.float32), like, x),
    "too large": lambda x: x[0] + jnp.zeros(1 << 42, np.float32),
}
for name, f in cases.items():
    try:
        jax.block_until_ready(jax.jit(f)(np.zeros(4, np.float32)))
    except jax.errors.JaxRuntimeError as error:
        print(name, str(error).split(":")[0])
try:
    jax.effects_barrier()  # which tells the failure of an effect once more
except jax.errors.JaxRuntimeError as error:
    print("effects", str(error).split(":")[0])
try:
    jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": "1"})(1.0)
except jax.errors.JaxRuntimeError as error:
    print("option", str(error).split(":")[0], "No such compile option: 'xla_no_such_option'" in str(error))
""",
}


@pytest.mark.cluster
def test_codes_through_the_plugin(served: Served) -> None:
    assert served.printed_by_each(SCRIPTS)["codes"].splitlines() == [
        "pure_callback INTERNAL",
        "io_callback INTERNAL",
        "ragged result INTERNAL",
        "too large RESOURCE_EXHAUSTED",
        "effects INTERNAL",
        "option INVALID_ARGUMENT True",
    ]
