"""Starts Ray by `ray.init` and stays: `python -P plain_server.py DIRECTORY FILE CPUS BYTES`, under the supervisor.

DIRECTORY: Ray's temporary one.  FILE: gets the address, at once and whole.  BYTES: of the object store.
"""

from __future__ import annotations

import os
import sys
import time


def main(directory: str, file: str, cpus: int, store: int) -> None:
    import ray
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False  # 127.0.0.1 stays 127.0.0.1
    ray.init(
        address="local",
        num_cpus=cpus,
        num_gpus=0,
        object_store_memory=store,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=directory,
    )
    with open(f"{file}.new", "w", encoding="ascii") as new:
        new.write(ray.get_runtime_context().gcs_address)
    os.rename(f"{file}.new", file)
    while True:
        time.sleep(86400)  # until a signal ends the process


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
