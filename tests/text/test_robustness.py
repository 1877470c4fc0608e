"""Whatever the text is, parsing ends in a module or in one of two errors; it is fast and needs little."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distxla.errors import HloSyntaxError, VerificationError
from distxla.jax.partitioner.loading import load_module
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.text.snippets import ALL

PROGRAM = Path(__file__).parents[1] / "programs" / "ring_attention" / "partitioned.hlo"
PIECES = [
    *'{}()[],=%:?"\\\n-',
    *("->", "<=", "f32", "f32[", "nan", "/*", "//", "ROOT ", "ENTRY ", "0", "-1", "99999999999999999999999", "true"),
    *("...", "{...}", "T(", "S(1)", "mesh[", "x", "add(", "constant(", "parameter(0)", "calls={", "\0", "é", "\ud800"),
]


def survives(text: str) -> bool:
    """Whether `text` is a module; anything but the two errors, and an error that points nowhere, fails the test."""
    module, failure = None, None
    try:
        module = parse_module(text)
    except (HloSyntaxError, VerificationError) as error:
        failure = error
    if module is None:
        assert failure is not None
        assert failure.location is not None
        assert str(failure)
        return False
    assert parse_module(print_module(module)) == module
    return True


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("name", ALL)
def test_truncations(name: str) -> None:
    text = ALL[name]
    for end in range(0, len(text), 3):
        survives(text[:end])


def test_truncations_of_a_program() -> None:
    text = PROGRAM.read_text()
    for end in range(0, len(text), 97):
        assert not survives(text[:end])


@pytest.mark.parametrize("name", ["...", "...a", "-1", "1", "2.5", "-", ".", "f32", "ENTRY", "true", "nan"])
def test_names_that_read_as_something_else_keep_their_percent(name: str) -> None:
    inner = f"%{name}x (%{name}: f32[4]) -> f32[4] {{\n  ROOT %{name} = f32[4] parameter(0)\n}}\n"
    called = (
        f"  p = f32[4] parameter(0)\n  ROOT %{name} = f32[4] call(p), to_apply=%{name}x, control-predecessors={{p}}\n"
    )
    assert survives(f"HloModule %{name}\n{inner}ENTRY %{name} {{\n{called}}}")


@given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(ALL)))
@settings(deadline=None, max_examples=1000)
def test_mutations(seed: int, name: str) -> None:
    choose = random.Random(seed)
    text = ALL[name]
    for _ in range(choose.choice([1, 1, 2, 4])):
        at = choose.randrange(len(text))
        other = choose.randrange(len(text))
        piece = choose.choice([*PIECES, text[other : other + choose.randrange(20)], ""])
        text = text[:at] + piece + text[at + choose.choice([0, 0, 1, 5, 12]) :]
    survives(text)


@given(text=st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
@settings(deadline=None)
def test_random_text(text: str) -> None:
    survives(text)
    survives("HloModule m\nENTRY e {\n x = " + text + "\n}")


PARAMETER = re.compile(r"^(  \w+ = ).*( parameter\(.*)$", re.MULTILINE)
RESULT_SHAPE = re.compile(r"^(  (?:ROOT )?\w+ = )(?:\([^=]*?\)|\w+\[[^ ]*) (?!parameter|constant)", re.MULTILINE)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("opcode")])
def test_shape_rules_survive_any_operands(name: str) -> None:
    """Omitted shapes: the rules meet operands of the wrong rank, type and number."""
    text = RESULT_SHAPE.sub(r"\1", ALL[name])
    for wrong in (
        "f32[]",
        "s32[4,4]",
        "(f32[4], s32[])",
        "()",
        "token[]",
        "c64[2,3,4]",
        "f32[0]",
        "f32[<=4]",
        "f32[?]",
    ):
        survives(PARAMETER.sub(rf"\1{wrong}\2", text))
        survives(PARAMETER.sub(rf"\1{wrong}\2", text, count=1))


def long_module(size: int) -> str:
    """A module of at least `size` characters made of many copies of a real entry computation."""
    text = PROGRAM.read_text()
    at = text.index("ENTRY ")
    name = text[at:].split()[1]
    parts, length = [text[:at]], at
    while length < size:
        parts.append(text[at + len("ENTRY ") :].replace(name, f"{name}_{len(parts)}", 1))
        length += len(parts[-1])
    return "\n".join(parts)


def test_700_kilobytes_in_two_seconds() -> None:
    text = long_module(700_000)
    start = time.process_time()
    module = parse_module(text)
    assert time.process_time() - start < 4.0  # half of it for a processor that is shared
    assert len(text) >= 700_000
    assert sum(len(c.instructions) for c in module.computations) > 2500


def test_parsing_loads_neither_llvm_nor_ray() -> None:
    code = (
        "import sys; from distxla.text.parser import parse_module;"
        "parse_module('HloModule m e { x = f32[] parameter(0) }');"
        "print(sorted({'llvmlite', 'ray', 'scipy', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_file_without_end_is_no_module() -> None:
    with pytest.raises(HloSyntaxError, match="/dev/zero:1:1"):
        load_module("/dev/zero")
