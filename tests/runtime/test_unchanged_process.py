"""The user's process before and after distxla has started and computed in it: nothing differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

WAYS = {
    "cluster": """
with dx.Cluster(partitions=2) as cluster:
    double = "HloModule m, num_partitions=2\\nENTRY e { x = f32[4] parameter(0)\\n ROOT y = f32[4] add(x, x) }"
    cluster.compile(dx.parse(double))([[np.ones(4, np.float32)]] * 2)
""",
    "distxla.jax": """
with dx.Cluster(partitions=2) as cluster:
    dxj.jit(lambda x: x + 1, cluster=cluster)(np.ones(3, np.float32)).block_until_ready()
""",
    "plugin": "jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(3, np.float32)))\n",
}
FIRST = {"cluster": "", "distxla.jax": "import jax, distxla.jax as dxj", "plugin": "import jax\njax.devices('cpu')"}
PROCESS = """
import faulthandler, json, os, random, signal, sys, threading, time, warnings
import numpy as np
import distxla as dx
{first}

def state():
    return {{
        "environment": dict(os.environ),
        "paths": list(sys.path),
        "hooks": [sys.excepthook, sys.breakpointhook, sys.displayhook, threading.excepthook],
        "faulthandler": faulthandler.is_enabled(),
        "signals": {{int(number): signal.getsignal(number) for number in signal.valid_signals()}},
        "interval": sys.getswitchinterval(),
        "folder": os.getcwd(),
        "recursion": sys.getrecursionlimit(),
        "threads": {{thread.name for thread in threading.enumerate() if not thread.name.startswith("distxla-")}},
        "random numbers": random.getstate(),
        "NumPy's random numbers": np.random.get_state()[1].tolist(),
        "Ray": sorted(name for name in sys.modules if name.partition(".")[0] == "ray"),
    }}

made, is_over = [], threading.Event()

def add_filters():
    while not is_over.wait(0.005):
        made.append(type("Mine", (Warning,), {{}}))
        warnings.simplefilter("ignore", made[-1])

random.seed(5)
np.random.seed(5)
before = state()
thread = threading.Thread(target=add_filters)
thread.start()
{work}
is_over.set()
thread.join()
after = state()
differing = [what for what in before if before[what] != after[what]]
kept = {{warning for _, _, warning, _, _ in warnings.filters}}
print(json.dumps([differing, len(made) > 0, all(warning in kept for warning in made)]))
"""


@pytest.mark.cluster
@pytest.mark.parametrize("way", WAYS)
def test_nothing_differs(way: str) -> None:
    if way != "cluster":
        pytest.importorskip("jax")
    script = PROCESS.format(first=FIRST[way], work=WAYS[way])
    environment = {"JAX_PLATFORMS": "distxla"} if way == "plugin" else {}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[], True, True]
