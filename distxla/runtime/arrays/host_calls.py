"""Functions of the driver that devices call while they run: JAX's callbacks, and custom-calls' targets.

A thread for each device takes what the device has sent (rewrites/host_calls.py), calls the function, and puts
the results into the device's stream. So calls of one device keep their order, and functions of several devices may run
at the same time.
"""

from __future__ import annotations

import inspect
import queue
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distxla import clock
from distxla.errors import (
    ArgumentError,
    ClusterError,
    DistxlaError,
    ExecutionError,
    OutOfMemoryError,
    TimeLimitError,
    raised,
)
from distxla.ir.stream_key import FIRST_HOST_CALL
from distxla.lazy_dataclass import dataclass
from distxla.machine.shortages import started_thread
from distxla.program.host_call_site import FunctionKey, HostCallSite

if TYPE_CHECKING:
    from distxla.ir.shape import Shape
    from distxla.runtime.streams.streams import ClusterStreams

SLICE_S = 0.05  # of waits, in which Ctrl-C is handled
_PACKAGE = str(Path(__file__).parents[1])
_here = threading.local()

StopReason = Callable[[], DistxlaError | None]

Stop = Callable[[], bool]
"""Whether a wait is in vain."""

Finish = Callable[[Stop], bool]
"""Blocks until functions have returned, or it is to stop: False then."""


def never() -> bool:
    return False


class _ResultError(ValueError):
    """How a function's result differs from the instruction's."""


@dataclass(frozen=True)
class BoundHostCall:
    """A call of a program and its function. takes_device: whether the function has a keyword `device`."""

    site: HostCallSite
    function: Callable[..., Any]
    takes_device: bool

    def results(self, arrays: Sequence[Any], device: int) -> tuple[Any, ...]:
        """Call the function: what it returns, as the instruction's results without tokens."""
        given = iter(arrays)
        args = [next(given) if shape.is_array else None for shape in self.site.operands]
        options = {"device": device} if self.takes_device else {}
        if self.site.fills:
            return self._filled(args, options)
        found = self.function(*args, **options)
        wanted, arrays_only = self.site.results, self.site.arrays
        if found is None:
            found = ()
        values = found if isinstance(found, tuple | list) else (found,)
        if len(values) == len(wanted):
            values = [value for value, shape in zip(values, wanted, strict=True) if shape.is_array]
        elif len(values) != len(arrays_only):
            raise _ResultError(f"returned {len(values)} values where {len(arrays_only)} are due")
        return tuple(_checked(value, shape, k) for k, (value, shape) in enumerate(zip(values, arrays_only)))

    def _filled(self, args: list[Any], options: dict[str, Any]) -> tuple[Any, ...]:
        """The results' arrays, which the function has filled."""
        made = [np.zeros(s.dims, s.dtype.dtype) if s.is_array else None for s in self.site.results]
        for result, operand in self.site.shared:
            if args[operand] is not None:
                made[result] = args[operand] = np.array(args[operand])
        shared = {operand for _, operand in self.site.shared}
        given = [arg if k in shared or arg is None else _read_only(arg) for k, arg in enumerate(args)]
        if self.function(*given, *made, **options) is not None:
            raise _ResultError("returned a value where it is to fill its last arguments")
        return tuple(array for array in made if array is not None)


def _read_only(array: Any) -> Any:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _checked(value: Any, shape: Shape, k: int) -> Any:
    array = np.asarray(value)
    if type(value) in (bool, int, float, complex):
        array = array.astype(shape.dtype.dtype)
    if array.dtype != shape.dtype.dtype or array.shape != shape.dims:
        found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        raise _ResultError(f"returned {found} as value {k} where {shape} is due")
    return array


def checked_host_calls(host_calls: Mapping[Any, Any] | None) -> Mapping[FunctionKey, Callable[..., Any]]:
    """The functions by their keys; ArgumentError for anything else."""
    if host_calls is None:
        return {}
    if not isinstance(host_calls, Mapping):
        raise ArgumentError(
            f"host_calls: expected functions by number or target name, found {type(host_calls).__name__}"
        )
    for key, function in host_calls.items():
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise ArgumentError(f"host_calls: expected a number or the name of a target, found {key!r}")
        if not callable(function):
            raise ArgumentError(f"host_calls[{key!r}]: {type(function).__name__} is not callable")
    return host_calls


def bound(
    sites: Sequence[HostCallSite], functions: Mapping[FunctionKey, Callable[..., Any]]
) -> tuple[BoundHostCall, ...]:
    """The calls of a program with their functions."""
    return tuple(BoundHostCall(site, functions[site.key], _takes_device(functions[site.key])) for site in sites)


def _takes_device(function: Callable[..., Any]) -> bool:
    try:
        found = inspect.signature(function).parameters.get("device")
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind is inspect.Parameter.KEYWORD_ONLY


def require_outside() -> None:
    """ClusterError in a function that a device has called: the cluster waits for that function."""
    if getattr(_here, "site", None) is not None:
        raise ClusterError(
            f"{_here.site} has called this function and waits for it: it cannot run a program on a cluster itself"
        )


class HostCalls:
    """The calls of a cluster's devices. failure: why the call in flight has to end."""

    def __init__(self) -> None:
        self.failure: DistxlaError | None = None
        self._changed = threading.Condition()
        self._tables: dict[int, tuple[BoundHostCall, ...]] = {}  # by device, while its program runs
        self._inboxes: dict[int, queue.SimpleQueue[ClusterStreams | None]] = {}  # by device, of its thread
        self._handled: dict[int, int] = {}  # by device that is served, the items that are done with, modulo 2^31
        self._stale: dict[int, tuple[BoundHostCall, ...]] = {}  # of failed calls, whose results may not be taken

    def bound(
        self, sites: Sequence[HostCallSite], functions: Mapping[FunctionKey, Callable[..., Any]], devices: Sequence[int]
    ) -> tuple[BoundHostCall, ...]:
        """The calls of a program with their functions. ClusterError where no thread can be started to call them.

        The threads start now: the program may be called at the end of the interpreter, which starts none any more.
        """
        for device in devices if sites else ():
            with self._changed:
                if device not in self._inboxes:
                    inbox: queue.SimpleQueue[ClusterStreams | None] = queue.SimpleQueue()
                    name = f"distxla-host-calls-{device}"
                    thread = threading.Thread(target=self._serve, args=(device, inbox), name=name, daemon=True)
                    started_thread(thread, "the program's host calls could not be served")
                    self._inboxes[device] = inbox
        return bound(sites, functions)

    def close(self) -> None:
        """End the threads of devices that have never called; those of others end with the cluster's streams."""
        for inbox in self._inboxes.values():
            inbox.put(None)

    @contextmanager
    def during(
        self,
        streams: ClusterStreams,
        tables: dict[int, tuple[BoundHostCall, ...]],
        time_limit: float | None,
        stop_reason: StopReason = lambda: None,
    ) -> Iterator[Finish]:
        """The body runs programs on these devices, each with its calls. Afterwards all functions have returned.

        The body gets a function that waits for that, once the devices are done; it may leave that to the end. Raises
        the error of a function; TimeLimitError where one has not returned so many seconds after the call began.
        stop_reason: why not to wait on for functions of a call that has failed before; raised.
        """
        tables = {device: calls for device, calls in tables.items() if calls}
        if not tables:
            yield lambda stop: True
            return
        end = None if time_limit is None else clock.now() + time_limit

        self._begin(streams, tables, end, stop_reason)
        try:
            yield lambda stop: self._await(streams, tables, end, stop)
            self._await(streams, tables, end)
            if self.failure is not None:
                raise self.failure
        except BaseException:
            self._stale.update(tables)
            raise
        finally:
            with self._changed:
                self._tables = {}
            self.failure = None

    def _begin(
        self,
        streams: ClusterStreams,
        tables: dict[int, tuple[BoundHostCall, ...]],
        end: float | None,
        stop_reason: StopReason,
    ) -> None:
        for device in tables:
            if device not in self._handled:
                # before the device can post: items of other programs are no calls
                posted = streams.outfeed(device, FIRST_HOST_CALL).posted
                self._inboxes[device].put(streams)  # first: an interrupt behind it has this done again
                self._handled[device] = posted
        late = {device: calls for device, calls in self._stale.items() if device in tables}
        # functions that a failed call has left running
        if not self._await(streams, late, end, lambda: stop_reason() is not None):
            raise stop_reason() or ClusterError("the call was interrupted")
        for device, calls in late.items():
            for call in calls:
                if call.site.arrays:
                    streams.infeed(device, call.site.channel).discard()
            del self._stale[device]
        with self._changed:
            self.failure, self._tables = None, tables

    def _await(
        self, streams: ClusterStreams, devices: Mapping[int, object], end: float | None, stop: Stop = never
    ) -> bool:
        """Block until everything that these devices have sent is done with; False where `stop` says so first."""
        for device in devices:
            posted = streams.outfeed(device, FIRST_HOST_CALL).posted
            with self._changed:
                if not self._await_handled(device, posted, end, stop):
                    return False
        return True

    def _await_handled(self, device: int, posted: int, end: float | None, stop: Stop) -> bool:
        """With the lock. The loop is not directly in the with-body: an interrupt there could leave the lock taken."""
        while self._handled[device] != posted:
            if stop():
                return False
            if end is not None and clock.now() >= end:
                raise TimeLimitError(
                    f"the time limit ran out while a function that device {device} has called still ran"
                )
            self._changed.wait(SLICE_S)
        return True

    def _serve(self, device: int, inbox: queue.SimpleQueue[ClusterStreams | None]) -> None:
        """The thread of a device."""
        streams = inbox.get()
        if streams is None:
            return
        outfeed = streams.outfeed(device, FIRST_HOST_CALL)
        while True:
            try:
                number, *arrays = outfeed.get()
            except ExecutionError:  # a call has failed; others will come
                continue
            except DistxlaError:  # the cluster is closed, or can't be used any more
                return
            try:
                self._handle(streams, device, int(number), arrays)
            finally:
                with self._changed:
                    self._handled[device] = (self._handled[device] + 1) % (1 << 31)
                    self._changed.notify_all()

    def _handle(self, streams: ClusterStreams, device: int, number: int, arrays: Sequence[Any]) -> None:
        with self._changed:
            calls = self._tables.get(device)
        if calls is None or self.failure is not None:  # of a call that has failed
            return
        call = calls[number]
        _here.site = f"{call.site.instruction} on device {device}"
        try:
            results = call.results(arrays, device)
        except BaseException as error:
            with self._changed:
                if self.failure is None and self._tables.get(device) is calls:
                    self.failure = _error_of(call.site, device, error)
            return
        finally:
            _here.site = None
        if call.site.arrays:
            try:
                streams.infeed(device, call.site.channel).put(results)
            except OutOfMemoryError as error:  # the device would wait for them
                where = f"{call.site.instruction} on device {device}: the results of host call {call.site.key!r}"
                with self._changed:
                    if self.failure is None and self._tables.get(device) is calls:
                        self.failure = OutOfMemoryError(f"{where} don't fit: {error.message}", call.site.location)
            except DistxlaError:  # the call has failed in the meantime, which says more
                return


def _error_of(site: HostCallSite, device: int, error: BaseException) -> ExecutionError:
    """What failed, with its line, in which instruction."""
    where = f"{site.instruction} on device {device}: host call {site.key!r}"
    if isinstance(error, _ResultError):
        return ExecutionError(f"{where} {error}", site.location)
    summary = raised(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_PACKAGE)]
    last = own[-1] if own else frames[-1]
    found = ExecutionError(f"{where} raised {summary} ({last.filename}:{last.lineno})", site.location)
    found.add_note("".join(traceback.format_exception(error)).rstrip())
    return found


__all__ = ["BoundHostCall", "HostCalls", "bound", "checked_host_calls", "require_outside"]
