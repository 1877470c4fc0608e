"""HLO text run by XLA CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def run_by_xla(text: str, arguments: Sequence[Array]) -> list[Array]:
    """The leaves of the result on one device."""
    import jax
    import jaxlib.xla_client
    from jaxlib import _hlo, _jax

    device = jax.devices("cpu")[0]
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    program = jaxlib.xla_client._xla.mlir.hlo_to_stablehlo(proto)
    executable = device.client.compile_and_load(program, _jax.DeviceList((device,)), jaxlib.xla_client.CompileOptions())
    with jax.enable_x64(True):
        return [np.asarray(out) for out in executable.execute([jax.device_put(a, device) for a in arguments])]
