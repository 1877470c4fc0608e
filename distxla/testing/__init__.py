"""Tests of sharded programs: a plugin for pytest with clusters that stay open, and comparisons of results.

    @pytest.mark.devices(8)
    def test_all_devices_agree(cluster):
        outs = cluster.compile(module)(args)
        assert_same_on_all_devices(outs)

The plugin loads itself (entry point `pytest11`). Names are imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distxla.testing.assertions import assert_matches_reference, assert_same_on_all_devices
    from distxla.testing.pool import ClusterPool

_PLACES = {
    "ClusterPool": "distxla.testing.pool",
    "assert_matches_reference": "distxla.testing.assertions",
    "assert_same_on_all_devices": "distxla.testing.assertions",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'distxla.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = ["ClusterPool", "assert_matches_reference", "assert_same_on_all_devices"]
