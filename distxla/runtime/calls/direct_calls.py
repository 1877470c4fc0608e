"""Calls that are issued without the call queue, by native code, while that has none: what they need of the runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from distxla.collectives.protocols import control_block as control_words
from distxla.runtime.arrays.device_cluster import DirectCall, DirectPlace
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.calls.cluster_hosts import Hosts
from distxla.runtime.calls.program_loading import ProgramLoader
from distxla.runtime.hosts.slice import Ticket


class DirectCalls:
    """The part of a cluster that such calls use, where all devices are called together. control: address of this host's
    control block, which is that of their header."""

    def __init__(self, hosts: Hosts, loader: ProgramLoader, lock: threading.RLock, *, is_possible: bool) -> None:
        """lock: held while a call is in flight.  is_possible: whether any call may be issued directly."""
        self._hosts = hosts
        self._loader = loader
        self._lock = lock
        self.control = hosts.local.control.address
        self._is_possible = is_possible and len(hosts.all) == len(hosts.local.slices) == 1

    def place(self, executable: Executable) -> DirectPlace | None:
        """Where calls of the executable are written; None where one takes more than a command to this host's devices,
        and before it is loaded, which its first call does."""
        specs = executable.program.communicators
        if not self._is_possible or executable.number is None or executable.host_calls or executable.checks:
            return None
        if any(spec.stream is not None or spec.of_channels for spec in specs):
            return None
        records = tuple(self.control + control_words.record_offset(device) for device in executable.devices)
        area = executable.call_area
        rows = tuple(area.ctypes.data + area.strides[0] * row for row in range(len(executable.devices)))
        return DirectPlace(records, executable.number, rows, area)

    def use(self, gate: int, functions: Any, hold: Callable[[object], None]) -> None:
        """See DirectCluster: all is native code's own."""

    def end(self, call: DirectCall, kept: Sequence[object]) -> None:
        """Wait for a call that is in flight; raises its failure as `Cluster.issue`. kept: memory that it may use."""
        dispatcher = self._loader.dispatcher
        with self._lock:
            try:
                ticket = Ticket(call.sequence, call.target)
                dispatcher.resume(call.devices, lambda: self._hosts.local.calls.take(ticket, call.devices))
            except BaseException:
                dispatcher.keep(*kept)
                raise

    def keep(self, kept: Sequence[object]) -> None:
        """Hold memory that devices may still use, if a call has failed in which some still compute."""
        self._loader.dispatcher.keep(*kept)


__all__ = ["DirectCalls"]
