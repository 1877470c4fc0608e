"""What a person sees at Python's prompt: names, reprs, texts, and refusals; without any replica."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.collectives.protocols.stream import STATE_BYTES
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.machine.heap import Heap
from distxla.machine.segments import Segment
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.calls.trace import Trace
from distxla.runtime.streams.stream_ends import LocalStreamMemory
from distxla.runtime.streams.streams import ClusterStreams, Infeed
from tests.runtime import hand_made

TEXT = """HloModule twice, num_partitions=2

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %r = f32[4] add(%x, %x)
}
"""
SIZE = 1 << 27


@pytest.fixture
def streams() -> Iterator[ClusterStreams]:
    segment, block = Segment.create("test", SIZE), ControlBlock.create(2)
    heap = Heap(SIZE, [segment])
    made = ClusterStreams(
        lambda device, key: block.carve(STATE_BYTES),
        heap.allocate,
        lambda device: LocalStreamMemory(block.segment.bytes, segment),
        lambda: None,
    )
    yield made
    made.close()
    block.close()
    segment.close()


def test_the_package_shows_what_it_offers() -> None:
    names = dir(dx)
    assert names == sorted(dx.__all__)
    assert all(hasattr(dx, name) for name in names)


def test_a_module_prints_as_hlo_and_its_repr_is_a_line() -> None:
    module = dx.parse(TEXT)
    assert str(module) == f"{module}" == TEXT
    assert dx.parse(str(module)) == module
    assert repr(module) == "Module(twice, num_partitions=2, 2 instructions in 1 computation)"


def test_a_module_of_the_builder_prints_too() -> None:
    b = dx.XlaBuilder("b", replica_count=4)
    b.parameter(0, "f32[2]") + 1
    module = b.build()
    assert repr(module).startswith("Module(b, replica_count=4, ")
    assert dx.parse(str(module)).name == "b"


CLUSTERS = [
    ({"partitions": 8}, "Cluster(replicas=1, partitions=8): not started"),
    (
        {"replicas": 2, "address": "10.0.0.1:6379"},
        "Cluster(replicas=2, partitions=1, address='10.0.0.1:6379'): not started",
    ),
]


@pytest.mark.parametrize(("options", "text"), CLUSTERS, ids=["embedded", "joined"])
def test_a_cluster_says_what_it_is(options: dict[str, Any], text: str) -> None:
    cluster = dx.Cluster(**options)
    assert repr(cluster) == str(cluster) == text
    names = dir(cluster)
    assert {"compile", "run", "put", "infeed", "devices", "close", "trace"} <= set(names)
    assert not {"heap", "call", "memory"} & set(names)
    assert not [name for name in names if name.startswith("_")]


@pytest.mark.parametrize("of", [dx.Cluster, dx.Executable, dx.DeviceArray, Infeed, Trace], ids=lambda c: c.__name__)
def test_the_classes_list_no_internal_names_either(of: Any) -> None:
    public = {name for parent in of.__mro__[:-1] for name in vars(parent) if not name.startswith("_")}
    assert {name for name in dir(of) if not name.startswith("_")} < public
    assert {"__init__", "__repr__"} < set(dir(of))


def test_a_cluster_that_is_not_started_says_what_is_missing() -> None:
    cluster = dx.Cluster(partitions=2)
    executable = Executable(cluster, hand_made.add_one(2), (0, 1), 0.0, False)
    missing = r"the cluster is not started: use `with Cluster\(\.\.\.\) as cluster:`, or call `start\(\)`"
    for use in (
        lambda: cluster.compile(dx.parse(TEXT)),
        lambda: cluster.run({0: dx.parse(TEXT)}),
        lambda: cluster.put(1.0, 0),
        lambda: cluster.infeed(0),
        lambda: cluster.replicas_info,
        lambda: executable([np.zeros(4, np.float32)]),
        cluster.trace,
    ):
        with pytest.raises(dx.ClusterError, match=missing):
            use()
    cluster.close()
    assert repr(cluster).endswith(": closed")
    for use in (lambda: cluster.compile(dx.parse(TEXT)), lambda: cluster.put(1.0, 0)):
        with pytest.raises(dx.ClusterError, match="the cluster is closed"):
            use()


def test_an_executable_shows_its_signature() -> None:
    cluster = dx.Cluster(partitions=4)
    executable = Executable(cluster, hand_made.add_one(4), (0, 1, 2), 0.0, False)
    assert repr(executable) == "Executable(hand-made on devices 0-2: (f32[4]) -> (f32[4]))"
    names = dir(executable)
    assert {"compile_s", "run_s", "devices", "module", "join", "parameters", "results"} <= set(names)
    assert not {"place_arguments", "call_area", "serial", "arena"} & set(names)


def test_streams_show_their_items(streams: ClusterStreams) -> None:
    infeed, outfeed, channel = streams.infeed(0), streams.outfeed(1), streams.channel(1, 7)
    assert (repr(infeed), str(infeed)) == ("Infeed(infeed of device 0: 0 items waiting)", "infeed of device 0")
    infeed.put((np.zeros(3), 1))
    assert repr(infeed) == "Infeed(infeed of device 0: 1 item waiting)"
    assert repr(outfeed) == "Outfeed(outfeed of device 1: 0 items waiting)"
    assert repr(channel) == "HostChannel(channel 7 of device 1)"
    channel.put(1.0)
    assert repr(streams.infeed(1, 7)) == "Infeed(recv on channel 7 of device 1: 1 item waiting)"
    assert dir(infeed) == ["close", "device", "key", "pending", "put", "put_all"]
    assert dir(outfeed) == ["device", "get", "key", "pending"]
    assert dir(channel) == ["channel", "close", "device", "get", "put", "put_all"]
    streams.close()
    assert repr(infeed) == "Infeed(infeed of device 0: the cluster is closed)"


def test_handles_are_not_copied(streams: ClusterStreams) -> None:
    cluster = dx.Cluster(partitions=2)
    executable = Executable(cluster, hand_made.add_one(2), (0, 1), 0.0, False)
    for handle in (cluster, executable, streams.infeed(0), streams.outfeed(0), streams.channel(0, 1)):
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=rf"{type(handle).__name__} belongs to the process that opened"):
                copied(handle)  # type: ignore[operator]


def test_a_report_is_read_by_printing_it() -> None:
    report = Diagnosis("deadlock", "devices 0, 1 can never go on", (), hints=("swap a and b",))
    assert repr(report) == "Diagnosis(deadlock: devices 0, 1 can never go on)"
    assert str(report) == "deadlock: devices 0, 1 can never go on\n  hint: swap a and b"


class WithoutDevices:
    """As far as a cluster is asked before an argument is refused."""

    def memory(self, device: int) -> None:
        return None


def test_an_argument_that_is_given_whole_is_told_how_to_cut() -> None:
    module = dx.parse(
        "HloModule m, num_partitions=2\nENTRY main {\n  p = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n"
        "  ROOT r = f32[4] negate(p)\n}\n"
    )
    program = hand_made.add_one(2)
    program = replace(program, counts=replace(program.counts, partitions=2))
    executable = Executable(WithoutDevices(), program, (0, 1), 0.0, False, module=module)  # type: ignore[arg-type]
    with pytest.raises(dx.ArgumentError, match=r"argument 0 on device 0: expected f32\[4\], found f32\[8\]") as caught:
        executable.place_arguments([[np.zeros(8, np.float32)]] * 2)
    assert caught.value.__notes__ == [
        "hint: give each device its part: args[d][0] is part d of np.split(whole, 2, axis=0), by the sharding "
        "{devices=[2]<=[2]}"
    ]
    with pytest.raises(dx.ArgumentError, match="found f32") as caught:
        executable.place_arguments([[np.zeros(7, np.float32)]] * 2)
    assert not hasattr(caught.value, "__notes__")


def test_builders_show_public_names() -> None:
    b = dx.XlaBuilder("b")
    for value in (b, b.parameter(0, "f32[2]")):
        assert not [name for name in dir(value) if name.startswith("_")]
    assert {"add", "all_reduce", "build"} <= set(dir(b))
