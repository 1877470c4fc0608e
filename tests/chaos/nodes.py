"""Two Ray nodes on this machine for drivers to join, until stdin ends; prints their address.

python -m tests.chaos.nodes
"""

from __future__ import annotations

import sys

from tests.runtime.hosts.nodes import ray_nodes

if __name__ == "__main__":
    with ray_nodes([2, 2]) as nodes:
        print(nodes.address, flush=True)
        sys.stdin.read()
