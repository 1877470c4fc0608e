"""Access of Python to shared words: functions that are linked with the loops of a call.

Emitted by transports/shared_memory/shared_word_functions.py:

    u32 distxla_read(ptr)              acquire: all that was written before the word's value is visible
    void distxla_publish(ptr, u32)     release: a reader of the value with acquire order sees all writes before it
    u64 distxla_read_long(ptr), void distxla_publish_long(ptr, u64)

A plain store of Python promises no order: some processors keep it, others do not.
"""

from __future__ import annotations

READ, PUBLISH = "distxla_read", "distxla_publish"
READ_LONG, PUBLISH_LONG = "distxla_read_long", "distxla_publish_long"
