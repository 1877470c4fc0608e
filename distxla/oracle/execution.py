"""An instruction that a device of the lock step executes, as waits, streams and channels see it."""

from __future__ import annotations

from typing import Protocol

from distxla.ir.module import Module
from distxla.ops.support.evaluation import Evaluation


class ExecutingDevice(Protocol):
    """id: flattened.  module: the program that it runs."""

    @property
    def id(self) -> int: ...
    @property
    def module(self) -> Module: ...


class Execution(Evaluation, Protocol):
    """One instruction that one device executes: the waiting instruction, and the ones it waits for."""

    @property
    def device(self) -> ExecutingDevice: ...
