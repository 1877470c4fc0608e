"""Functions of the driver that devices on another host call."""

from __future__ import annotations

import pytest

import distxla as dx
from tests.runtime.arrays.host_calls_cases import ARGS, CALLS, Calls, check_results

pytestmark = pytest.mark.cluster


def test_devices_of_another_host_call_the_driver(address: str) -> None:
    def fails(x: object, *, device: int) -> object:
        if device == 1:
            raise ValueError("no")
        return x

    with dx.Cluster(partitions=2, address=address, devices_per_host=[1, 1]) as cluster:
        step = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions())
        check_results(step(ARGS))
        wrong = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions(f1=fails))
        with pytest.raises(dx.ExecutionError, match="y on device 1: host call 1 raised ValueError: no"):
            wrong(ARGS)
        check_results(step(ARGS))
