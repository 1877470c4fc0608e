"""Functions that tests/testing/test_processes.py runs in JAX processes."""

from __future__ import annotations

import os
import sys
from typing import Any


def total(factor: float = 1.0) -> tuple[int, float]:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    whole = np.arange(jax.device_count(), dtype=np.float32) * np.float32(factor)
    x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("x")), lambda index: whole[index])
    return jax.process_index(), float(jax.jit(lambda x: x.sum())(x))


def pid() -> int:
    return os.getpid()


def fails_in_one() -> tuple[int, float]:
    import jax

    if jax.process_index() == 1:
        print("about to fail", file=sys.stderr)
        raise KeyError("no such batch")
    return total()


def disagrees() -> Any:
    import jax

    return total(2.0) if jax.process_index() else jax.jit(lambda: 3)()


def constant_differs() -> float:
    import jax

    return _scaled(2.0 + jax.process_index())


def _scaled(factor: float) -> float:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    whole = np.ones(jax.device_count(), np.float32)
    x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("x")), lambda index: whole[index])
    return float(jax.jit(lambda x: (x * factor).sum())(x))


def leaves() -> None:
    import jax

    if jax.process_index() == 1:
        os._exit(7)


def no_pickle() -> Any:
    return lambda: None
