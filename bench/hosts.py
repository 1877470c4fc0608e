"""The table of collectives between two Ray nodes on this machine, beside what a plain TCP connection moves."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from rich.table import Table

from bench.collective_programs import build
from bench.format import number, seconds
from distxla import Cluster, parse
from distxla.wire.connection import BUFFER_BYTES

SIZES = {"4 B": 4, "4 KiB": 4 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
TRIPS = {"4 B": 200, "4 KiB": 200, "1 MiB": 20, "16 MiB": 4}
COLLECTIVES = ("all-reduce", "all-gather", "collective-permute")
PLACEMENTS = ((1, 1), (4, 4))
PIECE_BYTES = 1 << 20
MOVED_BYTES = 256 << 20


@dataclass
class MeasuredHosts:
    """Seconds of one trip, and bytes a second of one-way TCP, measured in the same turns."""

    collective: str
    devices: tuple[int, ...]
    size: str
    size_bytes: int
    trip_s: list[float] = field(default_factory=list)
    tcp: list[float] = field(default_factory=list)

    def part(self) -> float:
        """Bytes of the operand a second, of what TCP moves."""
        return self.size_bytes / min(self.trip_s) / max(self.tcp)


def measure_hosts(match: str, rounds: int) -> Iterator[MeasuredHosts]:
    """Those whose "COLLECTIVE, DEVICES, SIZE" has `match` in it; DEVICES as 4+4."""
    with two_nodes() as address:
        for devices in PLACEMENTS:
            wanted = [
                MeasuredHosts(collective, devices, size, count)
                for collective in COLLECTIVES
                for size, count in SIZES.items()
                if match in f"{collective}, {'+'.join(map(str, devices))}, {size}"
            ]
            if not wanted:
                continue
            with Cluster(partitions=sum(devices), address=address, devices_per_host=list(devices)) as cluster:
                for row in wanted:
                    measure(cluster, row, rounds)
                    yield row


def measure(cluster: Cluster, row: MeasuredHosts, rounds: int) -> None:
    """Turns of the loop and of TCP."""
    members = sum(row.devices)
    loop = build(row.collective, members, row.size, row.size_bytes)
    step = cluster.compile(parse(loop.text))
    operand = np.random.default_rng(0).standard_normal(loop.dims).astype(np.float32)
    args = []
    for trips in (0, TRIPS[row.size]):
        args.append([[cluster.put(operand, d), cluster.put(np.int32(trips), d)] for d in range(members)])
    for turn in range(rounds + 1):
        times = []
        for arguments in args:
            begin = time.perf_counter()
            outs = step(arguments)
            times.append(time.perf_counter() - begin)
            del outs
        if turn:  # the first one meets fresh memory
            row.trip_s.append((times[1] - times[0]) / TRIPS[row.size])
            row.tcp.append(tcp_bytes_per_second())


@contextmanager
def two_nodes() -> Iterator[str]:
    """A Ray cluster of two nodes on this machine: its address."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    directory = tempfile.mkdtemp(dir="/tmp", prefix="n-")  # short: sockets have names in it
    with mock.patch.dict(os.environ, {"RAY_TMPDIR": directory, "RAY_USAGE_STATS_ENABLED": "0"}):
        started: Any = RayCluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        try:
            started.add_node(num_cpus=4)
            started.wait_for_nodes()
            yield str(started.address)
        finally:
            ray.shutdown()
            started.shutdown()
            shutil.rmtree(directory, ignore_errors=True)


def tcp_bytes_per_second() -> float:
    """What one connection on loopback moves one way, between two processes, from and into warm memory."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        sender = multiprocessing.get_context("fork").Process(target=_send, args=(server.getsockname(),))
        sender.start()
        receiver, _ = server.accept()
        with receiver:
            memory = memoryview(bytearray(16 << 20))
            receiver.recv_into(memory[:1], flags=socket.MSG_WAITALL)
            begin, got = time.perf_counter(), 0
            while got < MOVED_BYTES:
                at = got % len(memory)
                count = receiver.recv_into(memory[at : at + PIECE_BYTES])
                if not count:
                    break
                got += count
            taken = time.perf_counter() - begin
        sender.join()
    return got / taken


def _send(address: tuple[str, int]) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect(address)
        memory = memoryview(bytearray(16 << 20))
        sock.sendall(memory[:1])
        sent = 0
        while sent < MOVED_BYTES:
            at = sent % len(memory)
            sock.sendall(memory[at : at + PIECE_BYTES])
            sent += PIECE_BYTES


def host_table(rows: list[MeasuredHosts]) -> Table:
    """One trip of a loop, and what it is of TCP's throughput."""
    table = Table("between two nodes", "devices", "size", "a trip", "GB/s of operand", "TCP, one way", "part of TCP")
    for row in rows:
        least, tcp = min(row.trip_s), max(row.tcp)
        devices = "+".join(map(str, row.devices))
        moved = number(row.size_bytes / least / 1e9)
        table.add_row(row.collective, devices, row.size, seconds(least), moved, number(tcp / 1e9), number(row.part()))
    return table
