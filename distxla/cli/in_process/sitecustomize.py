"""Tells the launcher that the script of this process has come to its end, before JAX waits for the other processes.

JAX's own end of a process waits up to minutes for all others, which may wait for this one. Imported by Python as it
starts; the user's own module of this name is imported in its place. Imports nothing that the user may not expect.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading

FOLDER = os.path.dirname(os.path.abspath(__file__))
LAUNCHER, PYTHONPATH = "DISTXLA_LAUNCHER", "DISTXLA_PYTHONPATH"
ATTACHING = "distxla-attach"  # the thread of a process that reaches for its devices
MOST_ERROR = 300  # characters
MOST_PATH = 500


def begin() -> None:
    """Leave no trace of this folder, and be called at the end of the script."""
    told = os.environ.pop(LAUNCHER, "")
    paths = os.environ.pop(PYTHONPATH, None)
    if paths is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = paths
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != FOLDER]
    guard, _, path = told.partition(":")
    register = getattr(threading, "_register_atexit", None)  # before atexit's functions, of which JAX has one
    if register is not None and guard.isdecimal() and int(guard) == os.getppid():
        pid = os.getpid()
        register(lambda: end(path) if os.getpid() == pid else None)


def end(path: str) -> None:
    """Tell how the script has ended."""
    import json

    process = int(os.environ.get("DISTXLA_PROCESS", "0"))
    attaches = any(thread.name == ATTACHING for thread in threading.enumerate())  # which goes on while JAX waits
    told = json.dumps({"script": {"process": process, "attaches": attaches, **how()}}).encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, told + b"\n")
    except OSError:
        pass
    finally:
        os.close(descriptor)


def how() -> dict[str, str]:
    """The exception that nobody has caught, and the line that raised it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or hasattr(sys, "ps1"):
        return {"how": "end", "error": "", "site": ""}
    trace, site = error.__traceback__, ""
    libraries = (os.path.dirname(os.__file__), "<frozen")
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not site or ("site-packages" not in file and not file.startswith(libraries)):
            site = f"{os.path.basename(file)[-MOST_PATH:]}:{trace.tb_lineno}"
        trace = trace.tb_next
    text = f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
    return {"how": "raised", "error": text[:MOST_ERROR], "site": site}


def hand_on() -> None:
    """Import the user's module of this name, if there is one."""
    this = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


if __name__ == "sitecustomize":
    begin()
    hand_on()
