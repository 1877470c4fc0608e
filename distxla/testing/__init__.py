"""Tests of sharded programs: a plugin for pytest with clusters that stay open, and comparisons of results.

    @pytest.mark.devices(8)
    def test_all_devices_agree(cluster):
        outs = cluster.compile(module)(args)
        assert_same_on_all_devices(outs)

The plugin loads itself (entry point `pytest11`). Names are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distxla.lazy_names import lazy_names

if TYPE_CHECKING:
    from distxla.testing.assertions import (
        assert_matches_reference,
        assert_matches_unsharded,
        assert_same_on_all_devices,
    )
    from distxla.testing.pool import ClusterPool

__getattr__, __dir__ = lazy_names(
    globals(),
    {
        "ClusterPool": "distxla.testing.pool",
        "assert_matches_reference": "distxla.testing.assertions",
        "assert_matches_unsharded": "distxla.testing.assertions",
        "assert_same_on_all_devices": "distxla.testing.assertions",
    },
)

__all__ = ["ClusterPool", "assert_matches_reference", "assert_matches_unsharded", "assert_same_on_all_devices"]
