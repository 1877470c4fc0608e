"""Buffers, and the custom-calls that make and end them; the rules stand in docs/guide/annotations.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from distxla.compiler.passes.forget_buffers import ForgetBuffers
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import HloSyntaxError, VerificationError
from distxla.ir.element_type import ELEMENT_TYPES
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from distxla.text.shapes import parse_shape, print_shape
from tests.ops.program_case import compiled, evaluated

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guide" / "annotations.md").read_text()
X = np.arange(32, dtype=np.float32).reshape(8, 4)
SAME = "output_to_operand_aliasing={{}: (0, {})}"
PIN, UNPIN = f'custom_call_target="Pin", {SAME}', f'custom_call_target="Unpin", {SAME}'
WRITE = f'custom_call_target="write", {SAME}'


def entry(*lines: str) -> str:
    return "ENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


PINNED = ("x = f32[4] parameter(0)", f"b = b(f32[4]) custom-call(x), {PIN}")
UNPINNED = f"ROOT u = f32[4] custom-call(b), {UNPIN}"


def test_the_page_s_instructions() -> None:
    table = PAGE.partition("| instruction | gives |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(.*)` \| (.*) \|$", table, re.MULTILINE))
    assert list(rows.values()) == [
        "a buffer that holds x",
        "the content of the buffer b",
        "a buffer that holds zeros",
        "an array of zeros",
    ]
    pin, unpin, create, allocate = rows
    text = entry(
        "x = f32[8,4] parameter(0)",
        f"b = {pin}",
        f"u = {unpin}",
        f"z = {create}",
        f"v = {unpin.replace('(b)', '(z)')}",
        f"a = {allocate}",
        "ROOT t = (f32[8,4], f32[8,4], f32[8,4], f32[8,4]) tuple(u, v, a, x)",
    )
    for run in (evaluated, compiled):
        held = run(text, X)
        assert [np.array_equal(part, want) for part, want in zip(held, (X, 0 * X, 0 * X, X))] == [True] * 4
    assert print_module(parse_module(print_module(parse_module(text)))) == print_module(parse_module(text))


def test_a_buffer_travels_through_tuples_and_loops() -> None:
    text = f"""c {{ p = (s32[], (b(s32[4]), s32[])) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }}
b {{ p = (s32[], (b(s32[4]), s32[])) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  o = s32[] constant(1)
  j = s32[] add(i, o)
  q = (b(s32[4]), s32[]) get-tuple-element(p), index=1
  b0 = b(s32[4]) get-tuple-element(q), index=0
  v = s32[4] custom-call(b0), {UNPIN}
  w = s32[4] add(v, v)
  b1 = b(s32[4]) custom-call(w), {PIN}
  t = (b(s32[4]), s32[]) tuple(b1, i)
  ROOT r = (s32[], (b(s32[4]), s32[])) tuple(j, t) }}
""" + entry(
        "x = s32[4] parameter(0)",
        f"b = b(s32[4]) custom-call(x), {PIN}",
        "z = s32[] constant(0)",
        "t = (b(s32[4]), s32[]) tuple(b, z)",
        "s = (s32[], (b(s32[4]), s32[])) tuple(z, t)",
        "w = (s32[], (b(s32[4]), s32[])) while(s), condition=c, body=b",
        "q = (b(s32[4]), s32[]) get-tuple-element(w), index=1",
        "d = b(s32[4]) get-tuple-element(q), index=0",
        f"u = s32[4] custom-call(d), {UNPIN}",
        "ROOT y = (s32[4], s32[4]) tuple(u, x)",
    )
    x = np.array([1, -2, 3, 1 << 30], np.int32)
    for run in (evaluated, compiled):
        u, same = run(text, x)
        assert np.array_equal(u, x * 8)
        assert np.array_equal(same, x)


@pytest.mark.parametrize("element", [name for name, element in ELEMENT_TYPES.items() if element.is_data])
def test_what_nothing_wrote_is_zeros_of_any_type(element: str) -> None:
    text = entry(f'ROOT z = {element}[3,5] custom-call(), custom_call_target="AllocateBuffer"')
    (reference,), (code,) = evaluated(text), compiled(text)
    assert reference.tobytes() == code.tobytes()
    assert np.isnan(code).all() if element == "f8e8m0fnu" else not code.astype(bool).any()


BROKEN = {
    "buffer.C1": [
        ("x = f32[4] parameter(0)", f"ROOT b = f32[4] custom-call(x), {PIN}"),
        ("x = f32[4] parameter(0)", f"ROOT b = b(f32[5]) custom-call(x), {PIN.split(',')[0]}"),
        ("x = f32[4] parameter(0)", f"ROOT b = b(f32[4]) custom-call(x), {PIN.split(',')[0]}"),
        ("x = f32[4,2] parameter(0)", f"ROOT b = b(f32[4,2]{{0,1}}) custom-call(x), {PIN}"),
        ("x = (f32[4]) parameter(0)", 'ROOT b = b(f32[4]) custom-call(x), custom_call_target="Pin"'),
        ('ROOT b = b(f32[4]) custom-call(), custom_call_target="Pin"',),
        (*PINNED, f"ROOT c = b(f32[4]) custom-call(b), {PIN}"),
    ],
    "buffer.C2": [
        ('ROOT b = f32[4] custom-call(), custom_call_target="CreateBuffer"',),
        ("x = f32[4] parameter(0)", 'ROOT b = b(f32[4]) custom-call(x), custom_call_target="CreateBuffer"'),
    ],
    "buffer.C3": [
        (*PINNED, f"ROOT u = b(f32[4]) custom-call(b), {UNPIN}"),
        (*PINNED, 'ROOT u = f32[4] custom-call(b), custom_call_target="Unpin"'),
        ("x = f32[4] parameter(0)", f"ROOT u = f32[4] custom-call(x), {UNPIN}"),
    ],
    "buffer.C4": [
        (*PINNED, 'ROOT u = f32[4] custom-call(b), custom_call_target="write"'),
        (*PINNED, 'ROOT u = b(f32[4]) custom-call(b), custom_call_target="write"'),
        (*PINNED, 'ROOT u = b(f32[4]) custom-call(), custom_call_target="write"'),
        (
            *PINNED,
            'ROOT u = (b(f32[4]), b(f32[4])) custom-call(b), custom_call_target="write", '
            "output_to_operand_aliasing={{0}: (0, {}), {1}: (0, {})}",
        ),
    ],
    "buffer.C5": [
        (*PINNED, f"c = b(f32[4]) custom-call(b), {WRITE}", UNPINNED),
        (*PINNED, "t = (b(f32[4])) tuple(b)", "g = b(f32[4]) get-tuple-element(t), index=0",
         f"c = b(f32[4]) custom-call(g), {WRITE}", UNPINNED),
        (*PINNED, "t = (b(f32[4]), b(f32[4])) tuple(b, b)", "g = b(f32[4]) get-tuple-element(t), index=0",
         "h = b(f32[4]) get-tuple-element(t), index=1", f"c = b(f32[4]) custom-call(g), {WRITE}",
         f"ROOT u = f32[4] custom-call(h), {UNPIN}"),
        (*PINNED, 'ROOT c = (b(f32[4]), b(f32[4])) custom-call(b, b), custom_call_target="write", '
         "output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}"),
    ],
    "buffer.C6": [
        ("ROOT x = b(f32[4]) parameter(0)",),
        (*PINNED, "ROOT c = b(f32[4]) copy(b)"),
        (*PINNED, "ROOT c = b(f32[4]) opt-barrier(b)"),
    ],
}  # fmt: skip
LOOP = """c { p = (b(f32[4])) parameter(0)
  ROOT l = pred[] constant(false) }
b { p = (b(f32[4])) parameter(0)
  b0 = b(f32[4]) get-tuple-element(p), index=0
  %s }
""" + entry(
    *PINNED,
    "t = (b(f32[4])) tuple(b)",
    "w = (b(f32[4])) while(t), condition=c, body=b",
    "g = b(f32[4]) get-tuple-element(w), index=0",
    f"ROOT u = f32[4] custom-call(g), {UNPIN}",
)


def test_the_page_has_all_rules() -> None:
    assert re.findall(r"^\| `(buffer\.C\d)` \|", PAGE, re.MULTILINE) == list(BROKEN)


@pytest.mark.parametrize(("rule", "lines"), [(rule, lines) for rule, all_ in BROKEN.items() for lines in all_])
def test_broken_rules(rule: str, lines: tuple[str, ...]) -> None:
    with pytest.raises(VerificationError, match=f"^m.hlo:[0-9:]* verify: {rule}: "):
        verify_module(parse_module(entry(*lines), "m.hlo"))


def test_in_a_body_the_next_iteration_may_write_a_buffer() -> None:
    kept = "ROOT t = (b(f32[4])) tuple(b0)"
    verify_module(parse_module(LOOP % kept))
    written = f"c = b(f32[4]) custom-call(b0), {WRITE}\n  "
    with pytest.raises(VerificationError, match=r"buffer\.C5: p may be written by c, t: one is allowed"):
        verify_module(parse_module(LOOP % (written + kept)))


@pytest.mark.parametrize("text", ["b(f32[4])", "b(f32[2,3]{0,1})", "(b(f32[4]), b(s32[]), f32[])", "b(f32[])"])
def test_shapes_print_as_they_were_read(text: str) -> None:
    assert print_shape(parse_shape(text)) == text
    assert parse_shape(text.replace("(", " ( ")) == parse_shape(text)
    assert parse_shape(text).has_buffers


def test_a_buffer_is_no_array_of_its_shape() -> None:
    buffer, array = parse_shape("(b(f32[4]{0}), s32[])"), parse_shape("(f32[4]{0}, s32[])")
    assert not buffer.compatible(array)
    assert buffer.contents == array
    assert array.contents is array


@pytest.mark.parametrize("text", ["b((f32[4]))", "b(b(f32[4]))", "b(token[])", "b(f32[4]", "b()", "b"])
def test_what_is_no_buffer(text: str) -> None:
    with pytest.raises(HloSyntaxError):
        parse_shape(text)


def test_the_passes_forget_buffers_and_leave_other_modules_as_they_are() -> None:
    step = ForgetBuffers()
    module = parse_module(LOOP % "ROOT t = (b(f32[4])) tuple(b0)")
    arrays = step.run(module)
    verify_module(Pipeline(verify=True).before("schedule").run(module).module)
    assert not any(i.shape.has_buffers for c in arrays.computations for i in c)
    assert step.run(arrays) is arrays
