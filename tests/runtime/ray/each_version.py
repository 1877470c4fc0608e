"""Every tested version of Ray in an environment of its own: `python -m tests.runtime.ray.each_version [VERSION...]`.

Each runs test_versions.py, with this Python.
"""

from __future__ import annotations

import sys

from tests.releases import try_releases

RELEASES = (
    *("2.50.1", "2.51.2", "2.52.1", "2.53.0", "2.54.1", "2.55.1", "2.56.1", "2.57.1", "2.58.1", "2.59.0", "2.60.0"),
)
TESTS = ("tests/runtime/ray/test_versions.py",)

if __name__ == "__main__":
    sys.exit(try_releases(["ray"], sys.argv[1:] or RELEASES, "test", TESTS))
