"""Sharded programs in each form in which people have them: right numbers, and cut as XLA cuts them."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
import jax

from distxla.jax.partitioner.global_modules import partition_hlo
from distxla.jax.partitioner.loading import load_module
from distxla.jax.partitioner.partitioning import Partitioned, has_shardy, partition_module
from distxla.jax.private import names as private_names
from distxla.text.other_formats import module_proto_of
from tests.jax.programs import run, stablehlo
from tests.jax.sharded_programs import PROGRAMS, Program

FORMS = ("StableHLO", "dump", "HLO text")
COLLECTIVES = re.compile(
    r" (all-reduce|all-gather|all-to-all|collective-broadcast|collective-permute|reduce-scatter)(?:-start)?\("
)


def text_in(form: str, module: str, partitions: int) -> str:
    """dump: as XLA's `*.before_optimizations.txt`."""
    if form == "StableHLO":
        return module
    if form == "HLO text":
        return private_names.describe_hlo(private_names.proto_of_stablehlo(module.encode())).text
    options = private_names.PartitionerOptions(partitions, 1, has_shardy(module.encode()), (True,), (True,))
    with tempfile.TemporaryDirectory() as folder:
        private_names.compile_with_dumps(module, options, folder, "none")
        (dump,) = Path(folder).glob("*.before_optimizations.hlo.pb")
        proto = module_proto_of(dump.read_bytes())
    assert proto is not None
    return private_names.describe_hlo(proto).text


def collectives(text: str) -> Counter[str]:
    return Counter(COLLECTIVES.findall(text))


def assert_results(program: Program, made: Partitioned) -> None:
    found = run(made, jax.tree.leaves(program.args))
    for want, one in zip(program.expected(), found, strict=True):
        np.testing.assert_allclose(one, np.asarray(want), rtol=2e-5, atol=1e-5)


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_is_partitioned_as_xla_partitions_the_program(name: str, form: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    module = stablehlo(program.lowered())
    path = tmp_path / "module"
    path.write_text(text_in(form, module, program.on.size))
    made = partition_hlo(load_module(path), program.on.size)
    assert_results(program, made)
    assert collectives(made.text) == collectives(partition_module(module, partitions=program.on.size).text)
