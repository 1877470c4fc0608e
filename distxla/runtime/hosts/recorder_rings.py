"""Reading the flight recorders of devices, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from distxla.collectives import recorder
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.errors import ClusterError, ReplicaLostError
from distxla.runtime.values.host import Host

RINGS_S = 4.0  # for a host to send the requested rings at once: reports must not wait for one that never answers


def read_rings(hosts: Sequence[Host], rows: Mapping[int, bytes], most: int = event_words.EVENTS) -> dict[int, bytes]:
    """The last events of each device, up to `most`, as `recorder.pieces` gives them; without those of hosts that can't
    be reached or does not answer. rows: the devices' records. Blocks for a round trip to each other host."""
    found: dict[int, bytes] = {}
    for host in hosts:
        try:
            for device, ring in _rings(host, rows, most):
                found[device] = ring
        except (ClusterError, ReplicaLostError):  # which others report
            continue
    return found


def _rings(host: Host, rows: Mapping[int, bytes], most: int) -> Iterator[tuple[int, bytes]]:
    known = [device for device in host.devices if rows.get(device)]
    if not known:
        return
    begin, end = control_words.recorder_offset(known[0]), control_words.recorder_offset(known[-1] + 1)
    pieces = {device: list(recorder.pieces(rows[device], device, most)) for device in known}
    # where no trace is taken they are adjacent
    together = all(begin <= at and at + size <= end for parts in pieces.values() for at, size in parts)
    whole = host.control_read(begin, end - begin, RINGS_S) if together and any(pieces.values()) else b""
    for device, parts in pieces.items():
        if together:
            yield device, b"".join(whole[at - begin : at - begin + size] for at, size in parts)
        else:
            yield device, b"".join(host.control_read(at, size, RINGS_S) for at, size in parts)
