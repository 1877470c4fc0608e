"""HLO text run by XLA CPU itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from tests.ops.case import Array

jax = pytest.importorskip("jax")


@lru_cache(maxsize=1)  # callers run a text with one row of arguments after the other
def _compiled_by_xla(text: str, optimised: bool) -> Any:
    import jaxlib.xla_client
    from jaxlib import _hlo, _jax

    device = jax.devices("cpu")[0]
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    program = jaxlib.xla_client._xla.mlir.hlo_to_stablehlo(proto)
    options = jaxlib.xla_client.CompileOptions()
    if not optimised:  # a third of the time
        options.executable_build_options.debug_options.xla_backend_optimization_level = 0
    return device.client.compile_and_load(program, _jax.DeviceList((device,)), options)


def run_by_xla(text: str, arguments: Sequence[Array], *, optimised: bool = False) -> list[Array]:
    """optimised: where bits are compared, since LLVM then joins multiplications and additions."""
    device, executable = jax.devices("cpu")[0], _compiled_by_xla(text, optimised)
    with jax.enable_x64(True):
        return [np.asarray(out) for out in executable.execute([jax.device_put(a, device) for a in arguments])]
