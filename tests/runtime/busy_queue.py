"""A cluster whose queue of calls is kept busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import distxla as dx
from distxla.runtime.arrays.call_queue import PendingCall


@contextmanager
def busy_queue(cluster: dx.Cluster) -> Iterator[threading.Event]:
    """Calls that are submitted within begin at the end, or once the event is set."""
    cluster.wait_started()
    gate = threading.Event()
    cluster.queue.submit(PendingCall("gate", gate.wait))
    try:
        yield gate
    finally:
        gate.set()
