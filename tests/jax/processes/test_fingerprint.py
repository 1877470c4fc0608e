"""The fingerprint of a program: any change of what it computes changes it; lines, files and names don't."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import FrameTables, Module
from distxla.jax.processes.fingerprint import fingerprint_of, renamed
from distxla.jax.processes.program_text import ProgramText
from distxla.lazy_dataclass import replace
from distxla.ops.constant import Constant
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.jax.processes.program_cases import SCALED, edited, program

ROOT = Path(__file__).parents[2]
FILES = sorted(file for folder in ("programs", "tpu_schedules") for file in (ROOT / folder).rglob("*.hlo"))
BASE = program()
MOST = 30  # changes of a module that are tried


def fingerprint(text: ProgramText) -> str:
    return fingerprint_of(text.module, text.partitioned, text.rows, text.donated, text.checks, text.callbacks)


def of_module(module: Module) -> str:
    return fingerprint(replace(BASE, module=module))


def changed(module: Module, old: Instruction, new: Instruction) -> Module:
    computations = tuple(replace(c, instructions=tuple(new if i is old else i for i in c)) for c in module.computations)
    return module.replace(computations=computations)


@pytest.mark.parametrize(
    "edits",
    [
        [("constant(2)", "constant(3)")],
        [("constant(2)", "constant(2.0000002)")],
        [("constant(0)", "constant(-0.0)")],
        [("constant(0)", "constant(nan)")],
        [("f32[4]", "f32[6]")],
        [("f32[4]{0} broadcast", "f32[4]{0:T(4)} broadcast")],
        [("multiply(", "add(")],
        [("multiply(%param, %broadcast.1)", "multiply(%broadcast.1, %param)")],
        [("%sum = f32[] add(%a", "%sum = f32[] maximum(%a")],
        [("{{0,1}}", "{{1,0}}")],
        [("channel_id=1", "channel_id=2")],
        [("num_partitions=2", "num_partitions=4")],
        [("num_partitions=2", "num_partitions=2, input_output_alias={ {}: (0, {}, may-alias) }")],
        [("{(f32[4]{0})", "{(f32[4]{0:T(2)})")],
        [("dimensions={}", "dimensions={}, sharding={replicated}")],
        [("dimensions={}", 'dimensions={}, frontend_attributes={k="v"}')],
        [("dimensions={}", 'dimensions={}, backend_config="v"')],
    ],
    ids=lambda edits: edits[0][1],
)
def test_a_change_of_the_module_changes_it(edits: list[tuple[str, str]]) -> None:
    assert fingerprint(program(edited(*edits))) != fingerprint(BASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": [[1, 0]]},
        {"rows": [[0], [1]]},
        {"rows": [[2, 3]]},
        {"donated": frozenset([0])},
        {"checks": frozenset(["nan"])},
        {"parameter_shapes": ("f32[8]{0:T(8)}",)},
        {"parameter_shapes": ("s32[8]{0}",)},
        {"output_shapes": ("f32[]{:S(5)}",)},
        {"parameter_shardings": ("{replicated}",)},
        {"parameter_shardings": ("{devices=[2]1,0}",)},
        {"output_shardings": ("{maximal device=0}",)},
        {"replicas": 2},
        {"callbacks": ((0, "told (w2.py:8)", "a"),)},
    ],
    ids=str,
)
def test_a_change_around_it_changes_it(changes: dict[str, Any]) -> None:
    assert fingerprint(program(**changes)) != fingerprint(BASE)


@pytest.mark.parametrize(
    "edits",
    [
        [("line=12", "line=14")],
        [("column=8", "column=19")],
        [("w2.py", "another.py")],
        [("stack_frame_id=1", "stack_frame_id=2")],
        [('"scaled"', '"renamed"')],
        [("jit(scaled)/mul", "jit(scaled)/while/body/mul")],
        [("multiply.2", "mul.77")],
        [("%region", "%adder")],
        [("%main", "%entry.8")],
        [("jit_scaled", "jit_f")],
        [("param", "Arg_0.1"), ("Arg_0.1eter", "parameter")],
    ],
    ids=lambda edits: edits[0][1],
)
def test_lines_and_names_do_not(edits: list[tuple[str, str]]) -> None:
    assert fingerprint(program(edited(*edits))) == fingerprint(BASE)


def test_how_long_it_took_does_not() -> None:
    assert fingerprint(program(seconds=3.0, is_cached=True, jaxlib="0.12")) == fingerprint(BASE)


def test_without_the_tables_of_lines() -> None:
    """Which stand between the header and the first computation."""
    header, rest = SCALED[: SCALED.index("FileNames")], SCALED[SCALED.index("%region") :]
    bare = header + re.sub(r", metadata=\{[^}]*\}", "", rest)
    assert fingerprint(program(bare)) == fingerprint(BASE)
    assert fingerprint(program(bare.replace("constant(2)", "constant(3)"))) != fingerprint(BASE)


def test_one_nan_is_not_another() -> None:
    constant = next(i for i in BASE.module.entry_computation if isinstance(i.op, Constant))
    values = [np.array(bits, np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001)]
    found = {
        of_module(changed(BASE.module, constant, constant.replace(op=replace(constant.op, literal=literal))))
        for literal in (Literal(constant.shape.without_layout(), value) for value in values)
    }
    assert len(found) == 2


# --- over modules as JAX and XLA write them


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_of_real_modules_lines_and_names_do_not(file: Path) -> None:
    text = file.read_text()
    module = parse_module(text)
    wanted = of_module(module)
    assert of_module(parse_module(print_module(module))) == wanted
    assert of_module(parse_module(print_module(renamed(module)))) == wanted
    stripped = re.sub(r"(?<=[{ ])(line|source_line|source_end_line|column)=\d+", r"\1=7", text)
    assert of_module(parse_module(stripped)) == wanted
    assert of_module(module.replace(frames=FrameTables())) == wanted


def test_real_modules_differ() -> None:
    found = {of_module(parse_module(file.read_text())) for file in FILES}
    assert len(found) == len(FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_each_change_of_a_real_module_changes_it(file: Path) -> None:
    module = parse_module(file.read_text())
    wanted = of_module(module)
    made = list(_changes(module))
    made = made[:: 1 + len(made) // MOST]
    assert made
    assert wanted not in {of_module(each) for each in made}


def _changes(module: Module) -> Iterator[Module]:
    """One change each: of a constant's bit, of the order of operands, of an operand, of a layout."""
    for computation in module.computations:
        before: Instruction | None = None
        for i in computation:
            literal = i.op.literal if isinstance(i.op, Constant) else None
            if literal is not None and literal.array is not None and literal.array.size:
                raw = bytearray(literal.array.tobytes())
                raw[-1] ^= 1
                array = np.frombuffer(bytes(raw), literal.array.dtype).reshape(literal.array.shape)
                yield changed(module, i, i.replace(op=replace(i.op, literal=replace(literal, array=array))))
            if len(i.operands) > 1 and i.operands[0] != i.operands[-1]:
                yield changed(module, i, i.replace(operands=i.operands[::-1]))
            if before is not None and i.operands and i.operands[0] != before.name:
                yield changed(module, i, i.replace(operands=(before.name, *i.operands[1:])))
            before = i
