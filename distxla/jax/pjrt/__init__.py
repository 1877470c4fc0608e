"""PJRT plugin: JAX runs on distxla's devices, with the user's code unchanged.

    JAX_PLATFORMS=distxla python train.py

JAX finds this module by the entry point `jax_plugins` and calls `initialize`.
"""

from __future__ import annotations

from distxla.jax.pjrt.plugin import initialize

__all__ = ["initialize"]
