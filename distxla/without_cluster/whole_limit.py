"""The user's time limit in the error of a run that is told only what is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distxla.errors import TimeLimitError
from distxla.lazy_dataclass import replace
from distxla.time_limit import current_limit


@contextmanager
def whole_limit() -> Iterator[None]:
    """The with-body checks the remaining time itself. Its TimeLimitError is made to name the user's whole limit, and
    keeps its report of the devices."""
    limit = current_limit()
    if limit is None:
        yield
        return
    with limit.waiting():
        try:
            yield
        except TimeLimitError as error:
            whole = limit.error()
            if error.diagnosis is not None:
                whole.diagnosis = replace(error.diagnosis, summary=whole.message)
            for note in getattr(error, "__notes__", ()):
                whole.add_note(note)
            raise whole from error
