"""Every example of the pages, written with the builder: the stated result by reference, compiled, and by XLA CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.obstacles import obstacles
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.builder.example import Example
from tests.builder.examples_cases import EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_stated_result(example: Example) -> None:
    example.check(example.run_by_reference())


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_text_is_read_back(example: Example) -> None:
    module = example.module()
    assert parse_module(print_module(module)) == module


# --- compiled -------------------------------------------------------------------------------------------------------


def joined(examples: list[Example], replicas: int) -> Module:
    """A program that calls every example on parameters of its own and gives all results."""
    b = dx.XlaBuilder("examples", replica_count=replicas, num_partitions=1)
    results, number = [], 0
    for example in examples:
        parameters = []
        for value in example.device_arguments()[0]:
            parameters.append(b.parameter(number, value))
            number += 1
        result = b.call(example.module(), *parameters)
        results += list(result) if result.shape.is_tuple else [result]
    return b.build(b.tuple(results))


def rows(examples: list[Example], replicas: int, values: str) -> list[list[Any]]:
    """All arguments, or all stated results, of the examples on every device; examples for one device run on all."""
    found: list[list[Any]] = [[] for _ in range(replicas)]
    for example in examples:
        given = getattr(example, values)()
        for device in range(replicas):
            found[device] += given[device % len(given)]
    return found


def executable(replicas: int) -> list[Example]:
    """The examples of so many devices that this version executes; those of one device run on any number."""
    return [e for e in EXAMPLES if e.replicas in (1, replicas) and not obstacles(e.module())]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_the_stated_result_compiled(replicas: int) -> None:
    """All examples in one program."""
    examples = executable(replicas) if replicas == 4 else [e for e in executable(2) if e.replicas == 2]
    assert len(examples) > (100 if replicas == 4 else 4)
    with dx.Cluster(replicas) as cluster:
        outs = cluster.compile(joined(examples, replicas))(rows(examples, replicas, "device_arguments"))
        outs = [[np.asarray(leaf) for leaf in row] for row in outs]
    for example in examples:
        count = len(example.device_wanted()[0])
        example.check([[row.pop(0) for _ in range(count)] for row in outs][: example.replicas])


# --- XLA ------------------------------------------------------------------------------------------------------------

# XLA CPU has no such thing, or reads it in its own way: opcodes that are not its builder's.
NOT_IN_XLA = {"set_dimension_size_bounds_reductions", "get_dimension_size_of_both_kinds"}


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_xla_reads_the_text(example: Example) -> None:
    pytest.importorskip("jax")
    from jaxlib import _hlo

    text = print_module(example.module())
    assert example.name in _hlo.hlo_module_from_text(text).to_string()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.replicas == 1 and e.name not in NOT_IN_XLA], ids=str)
def test_xla_gives_the_stated_result(example: Example) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    outs = run_by_xla(print_module(example.module()), example.device_arguments()[0])
    replace(example, off=max(example.off, 1e-6)).check([outs])
