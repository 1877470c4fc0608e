"""Where a process is in the user's own program: the line that calls, and what its main thread does."""

from __future__ import annotations

import linecache
import sys
import threading
from types import FrameType, TracebackType
from typing import Final

from distxla.jax.processes.facts import Facts
from distxla.jax.processes.launches import LaunchSite
from distxla.lazy_dataclass import dataclass

# packages whose lines are not the user's
PACKAGES: Final = frozenset(
    (
        *("jax", "jaxlib", "distxla", "flax", "optax", "orbax", "chex", "haiku", "equinox", "numpy", "torch", "grain"),
        *("IPython", "ipdb", "pudb", "pydevd", "debugpy", "_pydevd_bundle", "pytest", "_pytest", "pluggy", "absl"),
    )
)
DEBUGGERS: Final = frozenset(
    ("pdb", "bdb", "ipdb", "pudb", "pydevd", "_pydevd_bundle", "IPython.core.debugger", "IPython.terminal.debugger")
)
_MOST_FRAMES: Final = 32
_MOST_TEXT: Final = 200
_UNKNOWN: Final = LaunchSite()


@dataclass(frozen=True)
class Stack(Facts):
    """What the main thread of a process does.

    file, line, function, text: the user's innermost line; "" and 0 where it is in none, as after its end.
    is_debugger: whether it waits there for the commands of a debugger.  frames: the user's, outermost first.  inside:
    the innermost function of all where it is no line of the user's: `jax._src.distributed.shutdown`.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    is_debugger: bool = False
    frames: tuple[str, ...] = ()
    inside: str = ""

    def __str__(self) -> str:
        """To follow "it is": `at train.py:49: time.sleep(60)`."""
        if not self.file:
            return f"at its end, in {self.inside}" if self.inside else "at its end"
        place = str(LaunchSite(self.file, self.line))
        if self.is_debugger:
            return f"at a breakpoint at {place}"
        return f"at {place}: {self.text}" if self.text else f"at {place}"


def user_site(frame: FrameType | None = None) -> LaunchSite:
    """The innermost line of the user's among those that have led here, or to the frame."""
    found = _user_frame(sys._getframe(1) if frame is None else frame)
    return _UNKNOWN if found is None else _site_of(found, found.f_lineno)


def site_of_traceback(trace: TracebackType | None) -> LaunchSite:
    """The user's innermost line of those in which an error has passed; else the innermost of all."""
    last = found = None
    while trace is not None:
        last = trace
        if _is_users(trace.tb_frame):
            found = trace
        trace = trace.tb_next
    innermost = found or last
    return _UNKNOWN if innermost is None else _site_of(innermost.tb_frame, innermost.tb_lineno)


def where_main_is() -> Stack:
    """Of this process, asked by any thread. It takes no lock that user code may hold."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return Stack() if frame is None else stack_of(frame)


def stack_of(frame: FrameType) -> Stack:
    """What a thread does whose innermost frame this is."""
    user, debugs = _user_frame(frame), False
    inner: FrameType | None = frame
    while inner is not None and inner is not user:
        debugs = debugs or _module_of(inner) in DEBUGGERS
        inner = inner.f_back
    inside = "" if _is_users(frame) else f"{_module_of(frame)}.{frame.f_code.co_name}"
    if user is None:
        return Stack(inside=inside)
    text = linecache.getline(user.f_code.co_filename, user.f_lineno, user.f_globals).strip()
    frames: list[str] = []
    outer: FrameType | None = user
    while outer is not None and len(frames) < _MOST_FRAMES:
        if _is_users(outer):
            frames.append(str(_site_of(outer, outer.f_lineno)))
        outer = outer.f_back
    site = _site_of(user, user.f_lineno)
    return Stack(site.file, site.line, site.function, text[:_MOST_TEXT], debugs, tuple(reversed(frames)), inside)


def _user_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return frame


def _is_users(frame: FrameType) -> bool:
    package = _module_of(frame).partition(".")[0]
    return package not in PACKAGES and package not in sys.stdlib_module_names


def _module_of(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""


def _site_of(frame: FrameType, line: int | None) -> LaunchSite:
    function = frame.f_code.co_name
    return LaunchSite(frame.f_code.co_filename, line or 0, "" if function == "<module>" else function)


__all__ = ["PACKAGES", "Stack", "site_of_traceback", "stack_of", "user_site", "where_main_is"]
