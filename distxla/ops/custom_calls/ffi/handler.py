"""Calls a handler of XLA's FFI from one place of a program."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from distxla.ir.shape import Shape
from distxla.ops.custom_calls.ffi.api import Context, api
from distxla.ops.custom_calls.ffi.attributes import attributes_of, read_attributes
from distxla.ops.custom_calls.ffi.layout import (
    BUFFER,
    HANDLER,
    MAJOR,
    METADATA,
    MINOR,
    ApiVersion,
    Attributes,
    CallFrame,
    Metadata,
    MetadataExtension,
    Stage,
    buffer_of,
    size_until,
    values_of,
)

_runs = itertools.count(1)


class FfiError(Exception):
    """A handler has returned an error, or can't be called; the message says which."""


class FfiCall:
    """A call's place in a program, with all that stays the same from run to run.

    stages: addresses of the handlers.  config: the call's attributes as text.  operands, results: leaves; tokens are
    buffers without data.  device: what the handler sees as its ordinal.  FfiError where the handler is of another
    version, or its instantiation fails.
    """

    def __init__(
        self,
        stages: Mapping[Stage, int],
        config: str | None,
        operands: Sequence[Shape],
        results: Sequence[Shape],
        device: int,
    ) -> None:
        self._api = api()
        self._device = device
        self._keep: list[Any] = []
        self._handlers = {stage: HANDLER(address) for stage, address in stages.items()}
        self._operands = [buffer_of(shape, self._keep) for shape in operands]
        self._results = [buffer_of(shape, self._keep) for shape in results]
        self._arguments = values_of(self._operands, BUFFER, self._keep)
        self._returned = values_of(self._results, BUFFER, self._keep)
        self._nothing = values_of([], BUFFER, self._keep)
        self._attributes = attributes_of(read_attributes(config), self._keep)
        self._no_attributes = attributes_of({}, self._keep)
        self._instance: dict[int, tuple[int, int]] = {}
        for stage in self._handlers:
            self._require_version(stage)
        if Stage.INSTANTIATE in self._handlers:
            context = Context(device, 0)
            self._run(Stage.INSTANTIATE, context, is_whole=False)
            self._instance = context.states

    def __call__(self, operands: Sequence[int | None], results: Sequence[int | None]) -> None:
        """Run it on the buffers at these addresses; blocks, also for what the handler leaves to other threads.

        FfiError where it returns an error.
        """
        for buffers, addresses in ((self._operands, operands), (self._results, results)):
            for buffer, address in zip(buffers, addresses, strict=True):
                buffer.data = address
        context = Context(self._device, next(_runs), dict(self._instance))
        try:
            for stage in (Stage.PREPARE, Stage.INITIALIZE, Stage.EXECUTE):
                if stage in self._handlers:
                    self._run(stage, context, is_whole=True)
        finally:
            for number, state in context.states.items():
                if number not in self._instance:
                    self._api.delete_state(*state)

    def close(self) -> None:
        """Delete the state of the instance."""
        for state in self._instance.values():
            self._api.delete_state(*state)
        self._instance = {}

    def _run(self, stage: Stage, context: Context, *, is_whole: bool) -> None:
        """is_whole: with buffers, which an instantiation has not."""
        number = self._api.enter(context)
        arguments, results = (self._arguments, self._returned) if is_whole else (self._nothing, self._nothing)
        frame = self._frame(stage, number, arguments, results, self._attributes)
        try:
            error = self._handlers[stage](ctypes.addressof(frame))
            text = self._api.take_error(error) if error else None
            if text is None and frame.future:
                text = self._api.await_future(frame.future)
        finally:
            self._api.leave(number)
        if text is not None:
            during = "" if stage is Stage.EXECUTE else f" from stage {stage.name}"
            raise FfiError(f"returned {text}{during}")

    def _frame(self, stage: Stage, context: int, arguments: Any, results: Any, attributes: Attributes) -> CallFrame:
        size = size_until(CallFrame, "attributes")
        return CallFrame(size, None, self._api.address, context, stage, arguments, results, attributes, None)

    def _require_version(self, stage: Stage) -> None:
        version = ApiVersion(size_until(ApiVersion, "minor"), None, -1, -1)
        metadata = Metadata(size_until(Metadata, "traits"), version, 0, 0)
        extension = MetadataExtension(
            size_until(MetadataExtension, "metadata"), METADATA, None, ctypes.addressof(metadata)
        )
        frame = self._frame(stage, 0, self._nothing, self._nothing, self._no_attributes)
        frame.extension_start = ctypes.addressof(extension)
        error = self._handlers[stage](ctypes.addressof(frame))
        if error:
            raise FfiError(f"returned {self._api.take_error(error)} when asked for its version")
        found = metadata.version.major, metadata.version.minor
        if found[0] != MAJOR or not 0 <= found[1] <= MINOR:
            raise FfiError(f"is of version {found[0]}.{found[1]} of XLA's FFI, expected {MAJOR}.0 to {MAJOR}.{MINOR}")
