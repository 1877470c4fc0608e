"""How many threads NumPy's library of linear algebra starts when it is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def one_thread(variables: Sequence[str]) -> Iterator[None]:
    """Within, importing NumPy starts no threads: they would spin for 0.1 s of processor time, and forks can't have any.

    variables: environment variables that say how many; they are as before after the with-body.
    """
    wanted = {name: os.environ.get(name) for name in variables}
    os.environ |= dict.fromkeys(variables, "1")
    try:
        yield
    finally:
        for name, value in wanted.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
