"""Memory outside the host's, such as a GPU's, that a device lets the other devices of its host use.

A device that allocates such memory for a program writes a row of its table before it posts an address in it. Another
device opens the memory when it first meets such an address, and says so: from then on the memory stays allocated until
the process ends, because nobody tells when others have closed it.
"""

from __future__ import annotations

from distxla.collectives.protocols.layout import Area, Order

BLOCKS = 256  # of one device
NUMBER_SHIFT = 48  # a posted address: the block's number, above the offset in it
HANDLE_BYTES = 64

EXPORTED = Area("exported block", "BLOCKS for each device, behind the flight recorders", 128)
X_IS_THERE = EXPORTED.u32(0, "is there", "its device", Order.RELEASE, "1 where the words behind this one say where")
X_PID = EXPORTED.u32(4, "pid", "its device", Order.PLAIN, "the process that has allocated it")
X_ADDRESS = EXPORTED.u64(8, "address", "its device", Order.PLAIN, "in that process")
X_HANDLE = EXPORTED.u64(16, "handle", "its device", Order.PLAIN, "with which others open it", count=HANDLE_BYTES // 8)
X_IS_OPENED = EXPORTED.u32(80, "is opened", "other devices", Order.MONOTONIC, "1 once another device has opened it")
TABLE_BYTES = BLOCKS * EXPORTED.size
