"""The memories of another host's devices as the driver reaches them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distxla.runtime.hosts.remote import RemoteHost


class RemotePages:
    """heap.Pages of another host's device memories, or of the memory that they share."""

    def __init__(self, host: RemoteHost, *, common: bool) -> None:
        self._host, self._common = host, common

    def punch(self, offset: int, size: int) -> None:
        """See heap.Pages."""
        self._host.punch(offset, size, common=self._common)


class RemoteMemory:
    """DeviceMemory of a device on another host."""

    def __init__(self, host: RemoteHost, device: int, size: int) -> None:
        self.size = size
        self._host, self._device = host, device

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """See DeviceMemory; the copy can't be written to."""
        found = self._host.fetch(self._device, offset, size)
        found.flags.writeable = False
        return found

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """See DeviceMemory."""
        self._host.write(self._device, offset, data)
