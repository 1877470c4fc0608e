"""Records the Python processes and clusters that a test run starts, each in the process where it happens.

Python imports a module of this name as it starts, so this folder is at the end of PYTHONPATH while `pytest --times`
runs. Lines are appended to one file, in single writes: a kind, the file of the present test, and more, between tabs.

    start   FILE    COMMAND     a Python process
    cluster FILE                a `Cluster.start`

Processes that are forks of others do not count. One with `-S` or `-I` does not import this module: then the process
that starts it writes its line. Every Python process imports this, so it imports nothing that Python has not yet.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

RECORD, FILE = "DISTXLA_TEST_TIMES", "DISTXLA_TEST_FILE"  # variables: where the lines go; the file of the present test
FOLDER = os.path.dirname(os.path.abspath(__file__))
HIDING = set("EIS")  # flags without which a process imports this module
RUNTIME, CLUSTER = "/distxla/runtime", "distxla.runtime.cluster"
LONGEST = 300  # characters of a command


def record(kind: str, *more: object) -> None:
    """Append a line; nothing where it cannot be, since then the run is over."""
    line = "\t".join([kind, *(" ".join(str(each).split()) for each in more)]) + "\n"
    try:
        descriptor = os.open(os.environ.get(RECORD, ""), os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    try:
        os.write(descriptor, line.encode(errors="replace"))
    finally:
        os.close(descriptor)


def record_start(command: Sequence[object]) -> None:
    """The line of a Python process."""
    record("start", os.environ.get(FILE, ""), " ".join(map(str, command))[:LONGEST])


def is_hidden(command: Sequence[object]) -> bool:
    """Whether the command starts a Python that does not import this module."""
    program, *words = map(str, command)
    if not os.path.basename(program).startswith("python"):
        return False
    for word in words:
        if not word.startswith("-") or word.startswith(("-c", "-m", "--")):
            return False
        if HIDING.intersection(word[1:]):
            return True
    return False


def completed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process with what this module needs, in which a test may have left it out."""
    found = dict(environment)
    for name in (RECORD, FILE):
        if name in os.environ:
            found[name] = os.environ[name]
    paths = [path for path in found.get("PYTHONPATH", "").split(os.pathsep) if path]
    if FOLDER not in paths:
        found["PYTHONPATH"] = os.pathsep.join([*paths, FOLDER])
    return found


def _watch_popen(module: Any) -> None:
    init = module.Popen.__init__

    def __init__(self: Any, args: Any, *more: Any, **named: Any) -> None:
        if named.get("env") is not None:
            named["env"] = completed(named["env"])
        init(self, args, *more, **named)
        if isinstance(args, (list, tuple)) and is_hidden(args):
            record_start(args)

    module.Popen.__init__ = __init__


def _watch_clusters(module: Any) -> None:
    start = module.Cluster.start

    def counted(self: Any) -> Any:
        found = start(self)
        record("cluster", os.environ.get(FILE, ""))
        return found

    counted.__doc__ = start.__doc__
    module.Cluster.start = counted


def _changed(spec: Any, change: Callable[[Any], None]) -> Any:
    """The spec of a module that is changed as soon as it has been imported."""
    run = spec.loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        change(module)

    spec.loader.exec_module = exec_module
    return spec


class _SubprocessFinder:
    """Among the finders of modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "subprocess":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        return _changed(next(filter(None, specs)), _watch_popen)


def _runtime_finder(path: str) -> Any:
    """Among the makers of a folder's finder: distxla's plugin for pytest has a finder of all its modules, which comes
    before all others and asks that of the folder."""
    if not path.endswith(RUNTIME):
        raise ImportError
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

    finder: Any = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))(path)
    find = finder.find_spec

    def find_spec(name: str, target: Any = None) -> Any:
        spec = find(name, target)
        return _changed(spec, _watch_clusters) if spec is not None and name == CLUSTER else spec

    finder.find_spec = find_spec
    return finder


def watch() -> None:
    """Record what this process starts from now on."""
    if "subprocess" in sys.modules:
        _watch_popen(sys.modules["subprocess"])
    else:
        sys.meta_path.insert(0, _SubprocessFinder())  # type: ignore[arg-type]
    if CLUSTER in sys.modules:
        _watch_clusters(sys.modules[CLUSTER])
    else:
        for path in [path for path in sys.path_importer_cache if path.endswith(RUNTIME)]:
            del sys.path_importer_cache[path]
        sys.path_hooks.insert(0, _runtime_finder)


if __name__ == "sitecustomize" and RECORD in os.environ:
    record_start(sys.orig_argv)
    watch()
