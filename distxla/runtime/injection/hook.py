"""The hook that compiled code calls at injection points, in the replica: counts executions and carries faults out.

Each fault is recorded in the device's record before it happens (control_block.R_INJECTED), since the process may not
survive it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.program.abi import BEFORE_STEP, INSIDE_WAIT
from distxla.program.artifact import InjectionPoint
from distxla.runtime.injection.faults import Fault, Kind, When

HOOK_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
SLICE_S = 0.01  # of a delay, after which a failed call ends it


class Injector:
    """A device's faults. call: where the header of its slice is in the control block.  owner: process id of the holder
    of the host's memory: the driver, or the host's agent.

    Rounds are counted by instruction, over all programs of the device, from the first one on.
    """

    def __init__(self, device: int, block: ControlBlock, call: int, owner: int, faults: Sequence[Fault]) -> None:
        self._block, self._call, self._owner = block, call, owner
        self._record = control_words.record_offset(device)
        self._faults = list(enumerate(faults))
        self._rounds: Counter[str] = Counter()
        self._current: InjectionPoint | None = None

    def hook(self, points: Sequence[InjectionPoint]) -> ctypes._FuncPointer:
        """The value of Context.inject for a program with these points; it must live as long as the program."""

        def ask(_: int, code: int) -> None:
            if code == INSIDE_WAIT:
                if self._current is not None:
                    self._reach(self._current, When.WAITING)
                return
            point, moment = points[code >> 2], code & 3
            if moment == BEFORE_STEP:
                self._current = point
                self._rounds.update(point.names)
                if point.communicates:
                    self._rounds[""] += 1
                self._reach(point, When.BEFORE)
            else:
                self._current = None
                self._reach(point, When.AFTER)

        return HOOK_TYPE(ask)

    def _reach(self, point: InjectionPoint, when: When) -> None:
        """The device has reached a point: carry out its faults that are due."""
        for number, fault in list(self._faults):
            if fault.when is not when or not (fault.at in point.names or (not fault.at and point.communicates)):
                continue
            round_ = self._rounds[fault.at]
            is_due = round_ >= fault.round if fault.kind is Kind.SLOW or when is When.WAITING else round_ == fault.round
            if is_due:
                if fault.kind is not Kind.SLOW:
                    self._faults.remove((number, fault))
                happened = self._block.load(control_words.R_INJECTED, self._record) | 1 << number
                self._block.store(control_words.R_INJECTED, happened, self._record)
                self.carry_out(fault)

    def carry_out(self, fault: Fault) -> None:
        if fault.kind is Kind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind is Kind.STOP:
            _stop(fault.ms / 1000)
        elif fault.kind is Kind.HOST_LOST:
            os.kill(self._owner, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            self._wait(fault.ms / 1000)

    def _wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until the call has failed."""
        end = clock.now() + seconds
        while (left := end - clock.now()) > 0 and not self._block.load(control_words.H_ABORT, self._call):
            clock.sleep(min(SLICE_S, left))


def _stop(seconds: float) -> None:
    """Stop this process for `seconds`, or until another process sends SIGCONT."""
    if not seconds:
        _stop_here()
        return
    # by a process of its own: a stopped one can't continue itself
    command = ["/bin/sh", "-c", 'sleep "$1"; kill -CONT "$2"', "sh", f"{seconds:.3f}", str(os.getpid())]
    helper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _stop_here()
    helper.wait()


def _stop_here() -> None:
    """Stop this process at once: by a signal to this thread. One to the process may be taken by another thread, and
    until that one runs, this one would go on and could end the call."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
