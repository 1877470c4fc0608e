"""PJRT plugin: JAX runs on distxla's devices, with the user's code unchanged.

    JAX_PLATFORMS=distxla python train.py

JAX finds this module by the entry point `jax_plugins` and calls `initialize`, in every program that uses JAX. Where
distxla's devices can't run, for want of the extra `distxla[run]`, programs on other devices must not notice.
"""

from __future__ import annotations

from distxla.machine.extras import unmet

if unmet("JAX on distxla's devices") is None:
    from distxla.jax.pjrt.plugin import initialize
else:
    from distxla.jax.pjrt.without_run import initialize

__all__ = ["initialize"]
