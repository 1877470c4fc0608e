"""The conditions under which an error counts as a refusal."""

from __future__ import annotations

import pickle

from distxla.errors import DistxlaError, InternalError


def assert_refusal(error: DistxlaError, *, located: bool = False) -> None:
    """It is not of the kind that a bug has, can be shown and sent to another process, and want of memory is not behind
    it. located: it points into the text."""
    assert not isinstance(error, InternalError), f"internal: {error}"
    assert error.location is not None or not located, f"without a place: {error}"
    assert str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    cause: BaseException | None = error
    while cause is not None:
        assert not isinstance(cause, MemoryError), f"memory was asked for that isn't there: {error}"
        cause = cause.__cause__ or cause.__context__
