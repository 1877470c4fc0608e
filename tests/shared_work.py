"""How xdist's workers share the tests; for `pytest -n N --dist loadscope --no-loadscope-reorder`.

Tests of clusters wait for most of their time, so three workers begin with long rows of them: those with several hosts,
which share their Ray nodes, and the runtime's others in two halves. What computes goes on meanwhile, in small pieces.
Other files with clusters follow, each as a whole; at the end come many quick tests, which fill whatever is left.

What decides is what a file says: with some versions of pytest the groups that xdist marks do not reach its scheduler,
and where the tests of a file go to several workers, each of them starts the file's clusters, and all else that is a
fixture of the module.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from zlib import crc32

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TESTS = Path(__file__).parent
PIECES = 8  # of a file; tests of several functions with the same parameters share what they compute


@cache
def _is_whole(module: str) -> bool:
    """Whether one worker runs the file, since its tests share a cluster or what a fixture has made."""
    text = (TESTS.parent / module).read_text(encoding="utf-8")
    return "mark.cluster" in text or 'scope="module"' in text


def scope(nodeid: str) -> str:
    """The name of the piece of work that a test belongs to."""
    module, _, rest = nodeid.partition("::")
    if not _is_whole(module):
        function, _, parameters = rest.partition("[")
        return f"{module}::{crc32((parameters or function).encode()) % PIECES}"
    if module.startswith("tests/runtime/hosts/"):
        return "hosts"
    if module.startswith("tests/jax/pjrt/"):
        return "pjrt"  # one process with JAX on distxla's devices runs the scripts of all
    if module.startswith("tests/runtime/"):
        return "runtime, a to k" if Path(module).name < "test_l" else "runtime, l to z"
    return module


def turn(nodeid: str, *, slow: bool) -> int:
    """When a test's turn comes: the least first.

    With other GPUs the process that compiles starts anew, which takes a second, and again for the tests after it: such
    tests end the row of several hosts.
    """
    name = scope(nodeid)
    if "::" in name:
        return 3 if slow else 5
    if nodeid.startswith("tests/runtime/hosts/test_gpus.py"):
        return 1
    return {"hosts": 0, "runtime, a to k": 2, "runtime, l to z": 2}.get(name, 4)


class Sharing(LoadScopeScheduling):
    """Pieces of work instead of modules, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker has ended, by a crash perhaps: then others get its pieces. Without those that were done: xdist gives
        them away, too, and a worker that gets nothing to do waits for ever."""
        pieces = self.assigned_work[node]
        for name in [name for name, tests in pieces.items() if all(tests.values())]:
            del pieces[name]
        return super().remove_node(node)
