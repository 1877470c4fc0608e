"""The user's lines in metadata: a line, a stack of frames, and names without the places they were called from."""

from __future__ import annotations

import sys

import pytest

from distxla.differ.source_lines import frames, primitive, written_as
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.text.parser import parse_module

# parent_frame_id is the parent's id plus one, as XLA writes it, or the id itself
STACK = """HloModule m

FileNames
1 "model.py"
2 "layers.py"

FunctionNames
1 "train"
2 "dense"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=30 end_line=30 column=4 end_column=9}}
2 {{file_name_id=2 function_name_id=2 line=7 end_line=7 column=4 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id={0}}}
2 {{file_location_id=2 parent_frame_id={1}}}

ENTRY main {{
  ROOT x = f32[] parameter(0), metadata={{op_name="x" stack_frame_id=2}}
}}
"""


def one(metadata: str) -> tuple[Module, Instruction]:
    text = f"HloModule m\n\nENTRY main {{\n  x = f32[] parameter(0)\n  ROOT y = f32[] negate(x){metadata}\n}}\n"
    module = parse_module(text)
    return module, module.entry_computation.root_instruction


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ("", None),
        (', metadata={op_name="neg"}', None),
        (', metadata={op_name="neg" source_file="a b.py" source_line=12}', "a b.py:12"),
        (', metadata={op_name="neg" source_file="/x/a.py" source_line=12 source_column=4}', "/x/a.py:12"),
    ],
)  # fmt: skip
def test_one_line(metadata: str, line: str | None) -> None:
    module, instruction = one(metadata)
    assert [frame.line for frame in frames(module, instruction)] == ([] if line is None else [line])


@pytest.mark.parametrize("parents", [(1, 2), (0, 1)], ids=["plus one", "the id"])
def test_a_stack_is_innermost_first(parents: tuple[int, int]) -> None:
    module = parse_module(STACK.format(*parents))
    found = frames(module, module.entry_computation.root_instruction)
    assert [(frame.line, frame.function) for frame in found] == [("layers.py:7", "dense"), ("model.py:30", "train")]


def test_a_stack_may_be_deeper_than_python_recurses() -> None:
    depth = 2 * sys.getrecursionlimit()
    first, last = (STACK.format(0, 1).index(words) for words in ("StackFrames", "ENTRY"))
    rows = "\n".join(f"{depth - k} {{file_location_id=1 parent_frame_id={depth - k - 1}}}" for k in range(depth))
    text = STACK.format(0, 1)[:first] + f"StackFrames\n{rows}\n\n" + STACK.format(0, 1)[last:]
    module = parse_module(text.replace("stack_frame_id=2", f"stack_frame_id={depth}"))
    assert len(frames(module, module.entry_computation.root_instruction)) == depth


def test_a_stack_that_comes_back_to_itself_ends() -> None:
    module = parse_module(STACK.format(2, 1))
    found = frames(module, module.entry_computation.root_instruction)
    assert found[0].line == "layers.py:7"
    assert len(found) <= 2


@pytest.mark.parametrize(
    ("op_name", "written", "last"),
    [
        ("jit(f)/jit(main)/shard_map/dot_general", "dot_general", "dot_general"),
        ("jit(f)/transpose(jvp(layer))/while/body/tanh", "transpose(jvp(layer))/while/body/tanh", "tanh"),
        ("jit(f)", "", "negate"),
        ("", "", "negate"),
    ],
)
def test_names_without_places(op_name: str, written: str, last: str) -> None:
    _, instruction = one(f', metadata={{op_name="{op_name}"}}')
    assert written_as(instruction) == written
    assert primitive(instruction) == last


def test_names_without_metadata() -> None:
    _, instruction = one("")
    assert (written_as(instruction), primitive(instruction)) == ("", "negate")
