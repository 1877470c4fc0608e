"""An event in a device's flight recorder (collectives/recorder.py): a cache line in a ring, one ring a device."""

from __future__ import annotations

from distxla.collectives.protocols.layout import Area, Order

EVENT_BYTES = 64  # a cache line
EVENTS = 256  # that a device keeps; a power of two
STEP = 1 << 31
LOOK_EVERY = 8  # events, a power of two
LARGE_BYTES = 8192

EVENT = Area("event of a flight recorder", "EVENTS a device, as a ring; written by its device", EVENT_BYTES)
_BY = "its device"
E_BEGUN = EVENT.u64(0, "begun", _BY, Order.PLAIN, "cycle counter at its begin")
E_ENDED = EVENT.u64(8, "ended", _BY, Order.PLAIN, "at its end")
E_WAITED = EVENT.u64(16, "waited", _BY, Order.PLAIN, "begin of its first wait, 0 if none")
E_RESUMED = EVENT.u64(
    24, "resumed", _BY, Order.PLAIN, "if it has waited, end of its last wait, 0 if that has not ended"
)
E_ROUND = EVENT.u64(32, "round", _BY, Order.PLAIN, "R_ROUND - R_BEFORE when it left")
E_NUMBER = EVENT.u32(
    40, "number", _BY, Order.RELEASE, "low half of n + 1, 0 while the event is replaced by another one"
)
E_SITE = EVENT.u32(44, "site", _BY, Order.PLAIN, "the site, or STEP and the number of a step")
E_EDGE = EVENT.u32(48, "edge", _BY, Order.PLAIN, "R_EDGE when it left")
E_ITERATION = EVENT.u32(52, "iteration", _BY, Order.PLAIN, "of the innermost loop around it, 0 outside loops")
E_RUN = EVENT.u32(56, "run", _BY, Order.PLAIN, "R_RUN")
E_PROGRAM = EVENT.u16(60, "program", _BY, Order.PLAIN, "number of the program")
E_WAITS_FOR = EVENT.i16(62, "waits for", _BY, Order.PLAIN, "device of its last wait, as R_WAITS_FOR")
