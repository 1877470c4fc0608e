"""The private names of JAX by which it lowers for distxla's devices what it lowers for no CPU.

They are looked up like those of names.py, and move from release to release like them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from distxla.jax.private.names import expected_names, jax_module, private_devices

_PLATFORM: Final = "cpu"
_CHANNEL: Final = 2  # of all transfers; JAX gives all collectives its first one, which cannot be both
_is_ours: ContextVar[bool] = ContextVar("is_lowered_for_distxla", default=False)
_needs_devices: ContextVar[bool] = ContextVar("needs_devices", default=False)
_clients: Final[list[Callable[[str], bool]]] = []


def lower_for_distxla(traced: Any) -> Any:
    """The jax.stages.Lowered of a jax.stages.Traced for distxla's devices, whatever JAX's own are."""
    dispatch = jax_module("jax._src.dispatch")
    with expected_names():
        needs_devices = dispatch.jaxpr_has_prim_requiring_devices(traced.jaxpr.jaxpr)
    if needs_devices:
        _stand_in_for_devices()
    tokens = _is_ours.set(True), _needs_devices.set(needs_devices)
    try:
        return traced.lower(lowering_platforms=(_PLATFORM,))
    finally:
        _is_ours.reset(tokens[0])
        _needs_devices.reset(tokens[1])


@cache
def _stand_in_for_devices() -> None:
    """Let JAX take devices of a private client for meshes without devices, where `_needs_devices`: callbacks and
    custom_partitioning ask for devices, of which JAX only uses the numbers."""
    pxla: Any = jax_module("jax._src.interpreters.pxla")
    with expected_names():
        assigned = pxla._get_and_check_device_assignment

    @functools.wraps(assigned)
    def with_devices(*args: Any, **options: Any) -> Any:
        found = assigned(*args, **options)
        if len(found) != 3:  # of an older jax, which refuses such programs
            return found
        backend, devices, count = found
        return backend, _stand_ins(count) if devices is None and _needs_devices.get() else devices, count

    pxla._get_and_check_device_assignment = with_devices


@cache
def _stand_ins(count: int) -> tuple[Any, ...]:
    """One client for each count: what JAX has lowered keeps it, and its threads, alive."""
    return private_devices(count)


def lower_for_clients(is_ours: Callable[[str], bool]) -> None:
    """From now on what JAX lowers for a client is for distxla's devices, if `is_ours` of its platform's version."""
    if is_ours not in _clients:
        _clients.append(is_ours)
    lower_gpu_collectives()


@cache
def lower_gpu_collectives() -> None:
    """Let JAX lower `psend`, `precv` and `pbroadcast` for distxla's devices, and for meshes without devices; JAX's own
    CPU refuses them as before."""
    parallel, mlir = jax_module("jax._src.lax.parallel"), jax_module("jax.interpreters.mlir")
    rules: dict[str, Callable[..., Any]] = {
        "psend_p": _send,
        "precv_p": _receive,
        "pbroadcast_p": _broadcast,
        "pbroadcast_dynamic_p": _broadcast_from_computed,
    }
    for name, rule in rules.items():
        primitive = getattr(parallel, name, None)
        if primitive is not None:  # this version has the function
            mlir.register_lowering(primitive, _chosen(primitive, rule), platform=_PLATFORM)


def _chosen(primitive: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for distxla's devices, JAX's refusal for others."""

    def lower(ctx: Any, *args: Any, **parameters: Any) -> Any:
        with expected_names():
            is_ours = _is_for_distxla(ctx.module_context)
            refusal = jax_module("jax._src.interpreters.mlir")._lowerings.get(primitive)
        if is_ours:
            return rule(ctx, *args, **parameters)
        if refusal is not None:
            return refusal.rule(ctx, *args, **parameters)
        raise NotImplementedError(
            f"MLIR translation rule for primitive '{primitive.name}' not found for platform {_PLATFORM}"
        )

    return lower


def _broadcast(ctx: Any, x: Any, **parameters: Any) -> Any:
    with expected_names():
        rule = jax_module("jax._src.lax.parallel")._pbroadcast_lowering
    return rule(ctx, x, **parameters)


def _broadcast_from_computed(ctx: Any, x: Any, source: Any, **parameters: Any) -> Any:
    """By a sum, as JAX defines it."""
    with expected_names():
        rule = jax_module("jax._src.lax.parallel")._pbroadcast_dynamic_fallback_lowering
    return rule(ctx, x, source, **parameters)


def _send(ctx: Any, x: Any, *, axis_name: Any, perm: Any) -> Any:
    """As JAX's rule for GPUs."""
    hlo = jax_module("jaxlib.mlir.dialects.stablehlo")
    with expected_names():
        edges = _edges(ctx, axis_name, perm, "psend")
        token = hlo.create_token()
        return hlo.SendOp([x], token, **edges).results if edges else [token]


def _receive(ctx: Any, token: Any, *, out_shape: Any, axis_name: Any, perm: Any) -> Any:
    """As JAX's rule for GPUs."""
    hlo, mlir = jax_module("jaxlib.mlir.dialects.stablehlo"), jax_module("jax._src.interpreters.mlir")
    with expected_names():
        edges = _edges(ctx, axis_name, perm, "precv")
        zeros = mlir.full_like_aval(ctx, 0, out_shape)
        return [hlo.RecvOp([zeros.type, token.type], token, **edges).results[0] if edges else zeros]


def _edges(ctx: Any, axis_name: Any, perm: Any, what: str) -> dict[str, Any]:
    """The attributes of a transfer that say between which devices it is; none where there are no such."""
    if not perm:
        return {}
    parallel, mlir = jax_module("jax._src.lax.parallel"), jax_module("jax._src.interpreters.mlir")
    hlo = jax_module("jaxlib.mlir.dialects.stablehlo")
    pairs, channel = parallel._pcollectives_lowering_common(ctx, axis_name=axis_name, perm=perm, op_name=what)
    if not channel:
        raise NotImplementedError(f"{what} currently only supports manual sharding")  # JAX's words
    handle = hlo.ChannelHandle.get(_CHANNEL, mlir.DEVICE_TO_DEVICE_TYPE)
    return {"source_target_pairs": mlir.dense_int_elements(pairs), "channel_handle": handle}


def _is_for_distxla(module: Any) -> bool:
    """Whether a module that JAX lowers is for distxla's devices."""
    client, mesh = module.backend, getattr(module.axis_context, "mesh", None)
    is_clients = client is not None and any(is_ours(client.platform_version) for is_ours in _clients)
    has_devices = mesh is None or getattr(mesh, "abstract_device", mesh) is not None
    return _is_ours.get() or is_clients or not has_devices
