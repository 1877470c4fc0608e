"""A call that Ctrl-C is to end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable


def interrupted_after(seconds: float, call: Callable[[], object]) -> None:
    """Call, and interrupt this process so many seconds after that began: on a loaded machine perhaps at once."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        call()
    finally:
        timer.join()
