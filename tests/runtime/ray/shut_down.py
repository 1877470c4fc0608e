"""A script that shuts down Ray beneath an open cluster, and what it prints."""

from __future__ import annotations

SHUT_DOWN = """
import gc, numpy as np, ray, distxla as dx
from distxla.errors import ClusterError
from tests.runtime import hand_made
cluster = dx.Cluster().start()
step = cluster.adopt(hand_made.add_one(1))
step([[np.ones(4, np.float32)]])
ray.shutdown()
del step
gc.collect()
cluster._loader._unloader.close()
try:
    cluster.adopt(hand_made.add_one(1))([[np.ones(4, np.float32)]])
except ClusterError as error:
    print(error.message)
cluster.close()
print(ray.is_initialized())
"""
SHUT_DOWN_SAYS = "Ray was shut down in this process: close the cluster, and open another one\nFalse\n"
