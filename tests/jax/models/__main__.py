"""Run programs with `jax.jit` on the devices that JAX has: `python -m tests.jax.models FOLDER NAME...`.

Writes a file of arrays for each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import AxisType

from tests.jax.models import PROGRAMS


def main(folder: str, *names: str) -> None:
    for name in names:
        program = PROGRAMS[name]()
        sizes = tuple(program.axes.values())
        devices = jax.devices()[: program.devices]
        mesh = jax.make_mesh(sizes, tuple(program.axes), axis_types=(AxisType.Auto,) * len(sizes), devices=devices)
        step, options = program.step(mesh)
        np.savez(Path(folder) / f"{name}.npz", **program.run(jax.jit(step, **options)))


if __name__ == "__main__":
    main(*sys.argv[1:])
