"""Dumps of whichever JAX is installed: every text parses, prints for XLA, and gives XLA's results.

So a new version of JAX that writes text otherwise is seen, whatever version made the programs that are kept here.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.cli.array_files import read_leaves
from distxla.compiler.passes.manual_partitions import per_device
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.collectives.executors import EXECUTORS, run_module
from tests.jax_dumps import dump

pytest.importorskip("jaxlib")
NAMES = ["collectives", "loops", "orders", "branches", "numbers", "step"]
TEXTS = [
    (name, form)
    for name in NAMES
    for form in ("partitioned", "optimized", "global")
    if (name, form) != ("step", "global")
]
each_text = pytest.mark.parametrize(("name", "form"), TEXTS)
Rows = list[list[Any]]


@pytest.fixture(scope="module")
def dumps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a process of its own: JAX counts its devices once. xdist's workers share what the first one makes."""
    parent = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        parent = parent.parent
    with open(parent / "jax_dumps.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (parent / "jax_dumps").exists():
            folder = tmp_path_factory.mktemp("dumps")
            made = subprocess.run([sys.executable, dump.__file__, folder], capture_output=True, text=True)
            assert made.returncode == 0, made.stderr
            assert sorted(path.name for path in folder.iterdir()) == sorted([*NAMES, "dumps"])
            folder.rename(parent / "jax_dumps")
    return parent / "jax_dumps"


def rows(path: Path, prefix: str, module: Module) -> Rows:
    """Of each device the leaves of its arguments or results."""
    computation = module.entry_computation
    shapes = [p.shape for p in computation.parameters] if prefix == "arg" else [computation.root_instruction.shape]
    leaves = [leaf for shape in shapes for leaf in shape.leaves()]
    found = read_leaves(str(path), prefix, dict.fromkeys(range(dump.DEVICES), leaves))
    return [[found[k, device] for k in range(len(leaves))] for device in range(dump.DEVICES)]


@pytest.mark.sampled(one_in=48, first=("compiled-loops-optimized",))
@each_text
@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_results_are_xlas(dumps: Path, name: str, form: str, executor: str) -> None:
    module = parse_module((dumps / name / f"{form}.hlo").read_text(), f"{name}/{form}.hlo")
    if form == "global":
        whole = per_device(module, dump.DEVICES)
        assert whole is not None
        with np.load(dumps / name / "whole.npz") as arrays:
            arguments = [
                [placed.shards.split(arrays[f"arg{k}"], device) for k, placed in enumerate(whole.parameters)]
                for device in range(dump.DEVICES)
            ]
        module = whole.module
    else:
        arguments = rows(dumps / name / "args.npz", "arg", module)
    outs = run_module(executor, module, arguments, replicas=1, partitions=dump.DEVICES)
    for device, wanted in enumerate(rows(dumps / name / "expected.npz", "out", module)):
        for k, (got, want) in enumerate(zip(outs[device], wanted, strict=True)):
            got = np.asarray(got)
            assert got.dtype == want.dtype
            place = f"leaf {k} on device {device}"
            if got.dtype.kind in "iub":
                np.testing.assert_array_equal(got, want, place)
            else:
                np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-5, atol=2e-5, err_msg=place)


@pytest.mark.sampled(one_in=4)
@each_text
def test_xla_reads_what_is_printed(dumps: Path, name: str, form: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = parse_module((dumps / name / f"{form}.hlo").read_text())
    printed = print_module(module)
    assert parse_module(printed) == module
    theirs = hlo.hlo_module_from_text(printed).to_string()
    assert len(parse_module(theirs).computations) == len(module.computations)
