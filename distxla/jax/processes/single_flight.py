"""Work that several ask for at the same time, done once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class SingleFlight:
    """Nothing is kept once it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[str, Future[Any]] = {}

    def once(self, key: str, make: Callable[[], _T]) -> _T:
        """What `make` gives, or gives another thread that has begun it for the same key; raises what it raises."""
        with self._lock:
            flight = self._flights.get(key)
            is_mine = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if is_mine:
            try:
                flight.set_result(make())
            except BaseException as error:
                flight.set_exception(error)
            finally:
                with self._lock:
                    del self._flights[key]
        return cast("_T", flight.result())


__all__ = ["SingleFlight"]
