"""Model of streams between a device (emitted code) and its host (stream_ends.py), with room for one item."""

from __future__ import annotations

from distxla.collectives.protocols import stream
from distxla.collectives.protocols.control_block import H_ABORT
from distxla.collectives.protocols.layout import Word
from tests.collectives.protocols.models.machine import ABORTED, Process
from tests.collectives.protocols.models.model import Model
from tests.collectives.protocols.models.wait import wait, wake

DEVICE, HOST = 0, 1


def infeed(items: int, *, timed: bool = False) -> Model:
    """The host puts items, the device takes them. timed: the host
    only looks every now and then, and whether it is in vain."""
    device, host = Process("device", {"fits": 1}), Process("host", {"timed": int(timed)})
    for r in range(items):
        host_put(host, r)
        device_await(device, r)
        with device.routine("copy"):
            device.read("got", "item")
            device.check("got", r + 1, "the item")
        device_taken(device, r)
    return _ended(device, host)


def outfeed(items: int, *, patient: bool, timed: bool = False) -> Model:
    """The device puts items, the host takes them. patient: the device waits a little before it sleeps."""
    start = {"fits": 1, "patient": int(patient)}
    device, host = Process("device", start), Process("host", {"timed": int(timed)})
    for r in range(items):
        device_room(device, r)
        with device.routine("copy"):
            device.data("item", r + 1)
        device_posted(device, r)
        host_get(host, r)
    return _ended(device, host)


def _ended(device: Process, host: Process) -> Model:
    device.end()
    host.end()
    return Model([device, host], [(stream.T_POSTED, 0), (stream.T_TAKEN, 0)])


# --- the device


def device_await(p: Process, r: int) -> None:
    """Wait for an item: distxla_stream_await."""
    p.load_own("taken", stream.T_TAKEN)
    with p.forever() as there:
        p.load("posted", stream.T_POSTED)
        there.leave("posted", ">=", 2 * r + 2)
        with p.when("ended", "!=", 0):
            p.end()
        wait(p, DEVICE, stream.T_POSTED, "posted", stream.T_DEVICE_SLEEPS)
    p.load("type", stream.L_TYPE)
    with p.when("fits", "==", 0):
        p.call("taken")
        p.end()
    p.check("type", r + 1, "the item's type")


def device_taken(p: Process, r: int) -> None:
    """Say that an item is taken, and all before it that were: distxla_stream_taken."""
    with p.tagged("mark the slot"):
        p.store(stream.L_TAKEN, r + 1)
    p.load("posted", stream.T_POSTED)
    with p.forever() as done:
        p.load_own("taken", stream.T_TAKEN)
        done.leave("taken", ">=", "posted")
        p.load("oldest", stream.L_TAKEN)
        done.leave("oldest", "<", r + 1)
        with p.tagged("take"):
            p.store(stream.T_TAKEN, 2 * r + 2)
    with p.tagged("wake for take"):
        wake(p, stream.T_TAKEN, stream.T_HOST_SLEEPS)


def device_room(p: Process, r: int) -> None:
    """Wait for room: distxla_stream_room."""
    p.load_own("posted", stream.T_POSTED)
    with p.when("too large", "!=", 0):
        p.end()
    with p.forever() as found_room:
        with p.tagged("look for room"):
            p.load("taken", stream.T_TAKEN)
        with p.when("slots are full", "==", 0):
            p.call("near ring")
            found_room.leave("taken", ">=", 2 * r)
            p.load_own("idle", stream.T_IDLE)
            with p.when("patient", "==", 0):
                p.assign("idle", 1)
            with p.when("idle", "!=", 0):
                p.call("far ring")
                found_room.leave("taken", ">=", 2 * r)
                _sleep(p)
            with p.otherwise():
                _wait_a_little(p)
        with p.when("slots are full", "!=", 0):
            _sleep(p)


def _sleep(p: Process) -> None:
    wait(p, DEVICE, stream.T_TAKEN, "taken", stream.T_DEVICE_SLEEPS)


def _wait_a_little(p: Process) -> None:
    """Sleep for a short time without being counted; it needs no wake."""
    p.nap(stream.T_TAKEN, "taken")
    p.load("abort", H_ABORT)
    with p.when("abort", "!=", 0):
        p.end(ABORTED)
    p.load("now", stream.T_TAKEN)
    with p.when("now", "==", "taken"):
        p.store(stream.T_IDLE, 1)


def device_posted(p: Process, r: int) -> None:
    """Say that an item is there: distxla_stream_posted."""
    p.load_own("posted", stream.T_POSTED)
    p.store(stream.L_OFFSET, r + 1)
    p.store(stream.L_BYTES, r + 1)
    with p.tagged("post"):
        p.store(stream.T_POSTED, 2 * r + 2)
    with p.tagged("wake for post"):
        wake(p, stream.T_POSTED, stream.T_HOST_SLEEPS)


# --- the host


def host_put(p: Process, r: int) -> None:
    """HostToDevice.put."""
    _host_await(p, stream.T_TAKEN, 2 * r)
    p.data("item", r + 1)
    p.store(stream.L_TYPE, r + 1)
    p.store(stream.L_TAKEN, 0)
    _announce(p, "host posts", stream.T_POSTED, r)


def host_get(p: Process, r: int) -> None:
    """DeviceToHost.get."""
    _host_await(p, stream.T_POSTED, 2 * r + 2)
    p.load("where", stream.L_OFFSET)
    p.check("where", r + 1, "the item's place")
    p.read("got", "item")
    p.check("got", r + 1, "the item")
    _announce(p, "host takes", stream.T_TAKEN, r)


def _host_await(p: Process, word: Word, value: int) -> None:
    """Until the device's word has reached a value; the host is counted while it sleeps, and to sleep is a fence."""
    with p.forever() as there:
        p.load("seen", word)
        there.leave("seen", ">=", value)
        with p.when("timed", "==", 0):
            with p.tagged("count the host"):
                p.store(stream.T_HOST_SLEEPS, 1)
            with p.tagged("host sleeps"):
                p.sleep(word, "seen")
            p.store(stream.T_HOST_SLEEPS, 0)
        with p.when("timed", "!=", 0):
            p.nap(word, "seen")
            p.load("abort", H_ABORT)
            with p.when("abort", "!=", 0):
                p.end(ABORTED)


def _announce(p: Process, tag: str, word: Word, r: int) -> None:
    """The host wakes in any case, so it needs no fence."""
    with p.tagged(tag):
        p.store(word, 2 * r + 2)
    with p.tagged(f"wake as {tag}"):
        p.wake(word)
