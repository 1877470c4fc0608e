"""Programs as users write them, with flax and optax: small models, sharded by `shard_map` and by shardings alone."""

from __future__ import annotations

from collections.abc import Callable

from tests.jax.models import decoding, experts, images, ring_attention, transformer
from tests.jax.models.program import Program

PROGRAMS: dict[str, Callable[[], Program]] = {
    name: make
    for module in (transformer, images, experts, ring_attention, decoding)
    for name, make in module.PROGRAMS.items()
}

__all__ = ["PROGRAMS", "Program"]
