"""Streams of devices on other hosts: the driver's ends reach their words and bytes through the agent's connection.

Frames are handled in the order in which they are sent, so an item's bytes are there before the word that announces it.
"""

from __future__ import annotations

from distxla.runtime.hosts.remote import RemoteHost
from distxla.runtime.streams.stream_ends import Bytes


class RemoteStreamMemory:
    """`stream_ends.StreamMemory` of a device on another host. Reading takes the way there and back."""

    def __init__(self, host: RemoteHost, device: int) -> None:
        self._host, self._device = host, device

    def word(self, offset: int) -> int:
        return int.from_bytes(self._host.control_read(offset, 4), "little")

    def set_word(self, offset: int, value: int) -> None:
        self._host.control_write(offset, value.to_bytes(4, "little"))

    def wait(self, offset: int, value: int, seconds: float) -> None:
        self._host.await_word(offset, value, seconds)

    def wake(self, offset: int) -> None:
        self._host.wake(offset)

    def read(self, offset: int, size: int) -> Bytes:
        return self._host.fetch(self._device, offset, size)

    def write(self, offset: int, data: Bytes) -> None:
        self._host.write(self._device, offset, data)
