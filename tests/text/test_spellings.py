"""Every spelling means what the usual one means: for us, for XLA's parser, and in a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.ops.program_case import compiled, evaluated
from tests.text.spellings import ALL, Spelling

SPELLINGS = [pytest.param(spelling, id=name) for name, spelling in ALL.items()]
RUN = [pytest.param(spelling, id=name) for name, spelling in ALL.items() if spelling.results]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_it_is_the_same_module(spelling: Spelling) -> None:
    module = parse_module(spelling.text)
    assert print_module(module) == print_module(parse_module(spelling.usual))
    assert parse_module(print_module(module)) == module


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_it_is_the_same_module_for_xla(spelling: Spelling) -> None:
    """What we print is to XLA what the text itself is, or the usual text where this XLA doesn't take the other one."""
    hlo = pytest.importorskip("jaxlib._hlo")
    version = tuple(map(int, pytest.importorskip("jaxlib").__version__.split(".")[:2]))
    printed = hlo.hlo_module_from_text(print_module(parse_module(spelling.text)))
    theirs = hlo.hlo_module_from_text(spelling.text if version >= spelling.since else spelling.usual)
    assert _body(printed.to_string()) == _body(theirs.to_string())


def _body(text: str) -> str:
    """Without the names of module and entry, which XLA invents where the text has none."""
    return re.sub("ENTRY [^ ]+", "ENTRY", text.partition("\n")[2])


@pytest.mark.sampled(one_in=3, first=("evaluated-a root that is the group's first member",))
@pytest.mark.parametrize("spelling", RUN)
@pytest.mark.parametrize("executor", [evaluated, compiled])
def test_it_gives_the_same_results(spelling: Spelling, executor: Callable[..., Any]) -> None:
    results = executor(spelling.text, *spelling.arguments)
    for got, wanted in zip(results, spelling.results, strict=True):
        np.testing.assert_array_equal(got, wanted)
