"""Which target executes the custom-calls of a name: one that comes with distxla, or one of the user's."""

from __future__ import annotations

from distxla.errors import UnsupportedOpError
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.target import Call, CustomCallTarget, built_in_target
from distxla.ops.custom_calls.user import user_target


def find_target(name: str) -> CustomCallTarget | None:
    """The target of that name: built in, or registered by the user; None if there is none."""
    return built_in_target(name) or user_target(name)


def call_obstacle(call: Call) -> str | None:
    """The reason why this version can't execute the call; None if it can."""
    found = find_target(call.name)
    if found is None:
        return (
            f'nothing executes the custom-call target "{call.name}"; register it with '
            f'dx.register_custom_call or --custom-call, or put zeros in its place by stub="zeros" or --stub-custom-call'
        )
    for shape in (call.shape, *call.operands):
        if shape.is_unbounded or (shape.is_dynamic and not found.takes_dynamic):
            return f'custom-call of "{call.name}" with the dynamic shape {shape}'
    try:
        return found.obstacle(call)
    except ConfigError as error:
        return f'custom-call of "{call.name}": {error}'


def require_target(call: Call) -> CustomCallTarget:
    """The call's target; UnsupportedOpError where there is none or the call is not as it wants it."""
    why = call_obstacle(call)
    found = find_target(call.name)
    if why is not None or found is None:
        raise UnsupportedOpError(why or "")
    return found
