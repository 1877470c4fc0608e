"""The custom-call in which XLA's host offloader wraps a computation for the host, as JAX's `compute_on` asks for it."""

from __future__ import annotations

from distxla.ops.custom_calls.target import Call, CustomCallTarget, target

HOST_EXECUTE = "HostExecute"


@target(HOST_EXECUTE)
class HostExecute(CustomCallTarget):
    """The computation that the custom-call names, on its operands: here a device computes it itself.

    `rewrites/executed_form.py` has made a call of each that can be executed; the remaining ones name no computation.
    Source: XLA's host offloading, which gives the name.
    """

    def obstacle(self, call: Call) -> str | None:
        named = ", ".join(call.op.called_computations) or "none of this module"
        return f'custom-call of "{call.name}" runs a computation on the host: it names {named}, not one that fits it'
