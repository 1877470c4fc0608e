"""One of the processes of processes.py: `python -m distxla.testing.process_member PARENT`.

Its stdin has pickled pairs (Function, arguments), its stdout an Answer for each, both behind their size. What functions
print goes to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
import threading
import traceback
from typing import Any

from distxla.machine.processes import descriptor_of, is_readable
from distxla.testing.processes import Answer, Function, pickled, read_sized, sized


def main(parent: int) -> None:
    """Answer until stdin ends."""
    _end_with(parent)
    answers = os.fdopen(os.dup(1), "wb")
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    importlib.import_module("jax").distributed.initialize()
    while data := read_sized(requests.read):
        answer = _answer(data)
        sys.stdout.flush()
        answers.write(sized(pickle.dumps(answer)))
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process as soon as its parent has ended, whatever it does."""
    try:
        descriptor = descriptor_of(parent)
    except ProcessLookupError:
        os._exit(1)

    def watch() -> None:
        is_readable(descriptor, 1e6)
        os._exit(1)

    threading.Thread(target=watch, name="distxla-parent", daemon=True).start()


def _answer(data: bytes) -> Answer:
    try:
        function, args = pickle.loads(data)
        return Answer(True, pickled(_found(function)(*args)))
    except BaseException as error:
        return Answer(False, pickled(error), traceback.format_exc())


def _found(function: Function) -> Any:
    """The function, of its module, which is imported as in the process that asks."""
    sys.path[:] = dict.fromkeys([*function.paths, *sys.path])
    try:
        module = importlib.import_module(function.module)
    except ImportError:
        spec = importlib.util.spec_from_file_location(function.module, function.file)
        if spec is None or spec.loader is None:
            raise
        module = sys.modules[function.module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Any = module
    for name in function.name.split("."):
        found = getattr(found, name)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
