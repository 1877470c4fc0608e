"""Model of calls: the driver gives commands, devices serve them (call_loops.py), one call after the other."""

from __future__ import annotations

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.control_block import CommandKind, ReplicaState
from tests.collectives.protocols.models.machine import Process
from tests.collectives.protocols.models.model import Model

FAILED = 2  # a status


def calls(devices: int, count: int, *, fails: int = -1) -> Model:
    """Some calls of all devices, then the driver stops them. fails: a device that fails in every call."""
    driver = Process("driver")
    served = []
    for device in range(devices):
        p = Process(f"device {device}", {"status": FAILED if device == fails else 0})
        serve(p, device)
        p.end()
        served.append(p)
    for r in range(count):
        driver.store(control_words.H_ABORT, 0)
        issue(driver, devices, r)
        call(driver, r + 1, (r + 1) * devices)
        with driver.when("aborted", "!=", 0):
            _await_all(driver, (r + 1) * devices)
        for device in range(devices):
            with driver.when("aborted", "==", 0):
                driver.read("got", "result", device)
                driver.check("got", r + 1, "the call's result")
    _stop(driver, devices, count)
    driver.end()
    return Model([driver, *served], [(control_words.H_COMMAND, 0), (control_words.H_DONE, 0)])


def issue(p: Process, devices: int, r: int) -> None:
    """Write the commands: runtime/hosts/local.py, issue."""
    for device in range(devices):
        p.data("arguments", r + 1, device)
        with p.tagged("write the command"):
            p.store(control_words.R_COMMAND_KIND, CommandKind.RUN, device)
            p.store(control_words.R_COMMAND_SEQUENCE, r + 1, device)
    with p.tagged("say how many"):
        p.store(control_words.H_DONE_TARGET, (r + 1) * devices)


def call(p: Process, sequence: int, target: int) -> None:
    """Start the call and wait for its end: distxla_call."""
    p.load("command", control_words.H_COMMAND)
    with p.when("command", "!=", sequence):
        with p.tagged("raise the command"):
            p.store(control_words.H_COMMAND, sequence)
        with p.tagged("wake the devices"):
            p.wake(control_words.H_COMMAND)
    with p.forever() as over:
        with p.tagged("look at the count"):
            p.load("finished", control_words.H_DONE)
            over.leave("finished", ">=", target)
        with p.tagged("look for failures"):
            p.load("aborted", control_words.H_ABORT)
            over.leave("aborted", "!=", 0)
        with p.when("spins left", "==", 0):
            with p.tagged("driver sleeps"):
                p.sleep(control_words.H_DONE, "finished", timed=True)
            with p.when("expired", "!=", 0):
                p.end()


def _await_all(p: Process, target: int) -> None:
    """After a failure, until all devices are back (runtime/hosts/local.py, end; it looks again and again)."""
    with p.forever() as over:
        p.load("finished", control_words.H_DONE)
        over.leave("finished", ">=", target)
        p.sleep(control_words.H_DONE, "finished")


def serve(p: Process, device: int) -> None:
    """Take commands until told to stop: distxla_serve."""
    with p.forever() as stopped:
        with p.tagged("await a command"):
            _next_command(p)
        p.load("number", control_words.R_COMMAND_SEQUENCE, device)
        with p.when("number", "==", "seen"):
            p.load_own("kind", control_words.R_COMMAND_KIND, device)
            stopped.leave("kind", "==", CommandKind.STOP)
            p.store(control_words.R_STATE, ReplicaState.RUNNING, device)
            with p.when("failed before", "==", 0), p.routine("run"):
                p.read("arguments", "arguments", device)
                p.check("arguments", "seen", "the call's arguments")
                p.data("result", "arguments", device)
            _finish(p, device)


def _next_command(p: Process) -> None:
    with p.forever() as spun:
        p.load("command", control_words.H_COMMAND)
        spun.leave("command", "!=", "seen")
        spun.leave("spins left", "==", 0)
    with p.forever() as awake:
        with p.tagged("look for a command"):
            p.load("command", control_words.H_COMMAND)
            awake.leave("command", "!=", "seen")
        with p.tagged("device sleeps"):
            p.sleep(control_words.H_COMMAND, "seen")
    p.load("seen", control_words.H_COMMAND)


def _finish(p: Process, device: int) -> None:
    p.store(control_words.R_STATUS, "status", device)
    p.store(control_words.R_STATE, ReplicaState.IDLE, device)
    with p.when("status", "!=", 0), p.tagged("set abort"):
        p.store_in_race(control_words.H_ABORT, "status")
    with p.tagged("command is over"):
        p.store(control_words.R_COMMAND_KIND, CommandKind.NONE, device)
    p.load("target", control_words.H_DONE_TARGET)
    with p.tagged("count the end"):
        p.add("before", control_words.H_DONE, 1)
    p.assign("wakes", 0)
    with p.when("status", "!=", 0):
        p.assign("wakes", 1)
    p.increment("done", "before")
    with p.when("done", "==", "target"):
        p.assign("wakes", 1)
    with p.when("wakes", "!=", 0), p.tagged("wake the driver"):
        p.wake(control_words.H_DONE)


def _stop(p: Process, devices: int, count: int) -> None:
    """runtime/hosts/local.py, stop."""
    for device in range(devices):
        with p.tagged("write the stop"):
            p.store(control_words.R_COMMAND_KIND, CommandKind.STOP, device)
            p.store(control_words.R_COMMAND_SEQUENCE, count + 1, device)
    with p.tagged("raise the stop"):
        p.store(control_words.H_COMMAND, count + 1)
    with p.tagged("wake for the stop"):
        p.wake(control_words.H_COMMAND)
