"""Lines as XLA prints them, which are read at once, give what reading them part by part gives."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from distxla.errors import HloSyntaxError
from distxla.ir.module import Module
from distxla.text.instructions import InstructionReader
from distxla.text.parser import parse_module
from distxla.text.printed_lines import PrintedLines

ROOT = Path(__file__).parents[2]
FILES = sorted(file for folder in ("tests", "examples") for file in (ROOT / folder).rglob("*.hlo"))
BODY = """HloModule m, num_partitions=2

addf { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }

%fused (p: f32[8,4], q: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %q = f32[8,4]{1,0} parameter(1)
  ROOT %r = f32[8,4]{1,0} multiply(f32[8,4]{1,0} %p, f32[8,4]{1,0} %q), metadata={op_name="jit(f)/mul"}
}

ENTRY e {
  x = f32[8,4]{1,0} parameter(0)
  y = f32[8,4]{1,0} add(x, x), metadata={op_type="add" op_name="a, b" source_file="m.py" source_line=7}
  y.1 = f32[8,4]{1,0} add(y, x), metadata={op_name="a{b}"}
  y.2 = f32[8,4]{1,0} add(y, y.1) // the rest, metadata={op_name="no"}
  y.3 = f32[8,4]{1,0} add(y, y.2) // the rest, metadata={op_name="no"}
  z = f32[4,8]{1,0} transpose(y.3), dimensions={1,0}, metadata={op_name="t"}
  z.1 = f32[8,4]{1,0} transpose(z), dimensions={1,0}
  z.2 = f32[4,8]{1,0} transpose(z.1), dimensions={1,0}, metadata={op_name="t2"}
  z.3 = f32[8,4]{1,0} transpose(z.2), dimensions={1,0}, sharding={replicated}
  z.4 = f32[4,8]{1,0} transpose(z.3), dimensions={1,0}, sharding={replicated}
  w = f32[8,4]{1,0} fusion(z.1, z.3), kind=kLoop, calls=fused, metadata={op_name="w"}
  w.1 = f32[8,4]{1,0} fusion(w, z.3), kind=kLoop, calls=fused
  v = f32[8,4]{1,0} all-reduce(w.1), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=addf
  v.1 = f32[8,4]{1,0} all-reduce(v), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=addf
  o = f32[] constant(1)
  s = f32[8]{0} reduce(v.1, o), dimensions={1}, to_apply={ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] add(a, b) }
  s.1 = f32[8]{0} reduce(v, o), dimensions={1}, to_apply={ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] add(a, b) }
  d = f32[8]{0} add(s, s.1), control-predecessors={w}
  d.1 = f32[8]{0} add(s, s.1), control-predecessors={w}
  n = f32[8]{0} negate( d.1 )
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(n, /*index=1*/d)
}
"""  # noqa: E501


def by_parts(text: str, monkeypatch: pytest.MonkeyPatch) -> Module:
    with monkeypatch.context() as patched:
        patched.setattr(PrintedLines, "read", lambda *_: False)
        return parse_module(text)


def spans(module: Module) -> list[Any]:
    return [(i.name, i.span, dict(i.attribute_spans)) for c in module.computations for i in c]


def test_lines_are_read_as_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, wanted = parse_module(BODY), by_parts(BODY, monkeypatch)
    assert at_once == wanted
    assert spans(at_once) == spans(wanted)
    assert spans(pickle.loads(pickle.dumps(at_once))) == spans(wanted)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name + "/" + path.name)
def test_files_are_read_as_part_by_part(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = file.read_text()
    at_once, wanted = parse_module(text), by_parts(text, monkeypatch)
    assert at_once == wanted
    assert spans(at_once) == spans(wanted)


LINE = "  y.1 = f32[8,4]{1,0} add(y, x), metadata"
WRONG = [  # what takes the place of a part of that line
    ("y.1 =", "y ="), ("add(y, x)", "add(y)"), ("add(y, x)", "add(y, x, x)"), ("add(y, x)", "add(y,, x)"),
    ("add(y, x)", "add(%%y, x)"), ("add(y, x)", "add(y, nothing)"), ("add(y, x)", "addd(y, x)"),
    ("add(y, x)", "reduce(y, x)"), ("add(y, x)", "add(y x)"), ("add(y, x)", "add(f32[3]{0} %y, x)"),
    ("add(y, x)", "add(y, x), dimensions={1}"), ("f32[8,4]{1,0} add", "f99[8,4]{1,0} add"), ("  y.1", "  1y"),
    (", metadata", ", metadata={}, metadata"), (", metadata", " metadata"), (", metadata", ", nothing=3, metadata"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "by"), WRONG)
def test_what_is_wrong_is_told_as_before(part: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = BODY.replace(LINE, LINE.replace(part, by))
    assert text != BODY
    with pytest.raises(Exception, match=r".") as wanted:
        by_parts(text, monkeypatch)
    with pytest.raises(type(wanted.value), match=re.escape(str(wanted.value))):
        parse_module(text)


def test_a_second_root_is_told() -> None:
    line = "  ROOT t = (f32[8]"
    with pytest.raises(HloSyntaxError, match="a second ROOT"):
        parse_module(BODY.replace(line, "  ROOT last = f32[8]{0} negate(n)\n" + line))


@pytest.mark.parametrize(
    "line",
    [
        "add(y, x)", "transpose(x), dimensions={0,1}", "fusion(y, x), kind=kLoop, calls=fused",
        "all-reduce(y), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=addf",
    ],
)  # fmt: skip
def test_lines_that_are_written_alike_are_read_part_by_part_once(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = InstructionReader.read_right_hand_side
    names: list[str | None] = []

    def counted(self: InstructionReader, name: str | None, *others: Any, **more: Any) -> Any:
        names.append(name)
        return read(self, name, *others, **more)

    monkeypatch.setattr(InstructionReader, "read_right_hand_side", counted)
    lines = [f'  i{k} = f32[8,4]{{1,0}} {line}, metadata={{op_name="n{k % 7}"}}' for k in range(300)]
    text = BODY.replace("  ROOT t = ", "\n".join(lines) + "\n  ROOT t = ")
    assert parse_module(text).entry_computation["i299"].metadata is not None
    assert len([name for name in names if name in {f"i{k}" for k in range(300)}]) <= 1
