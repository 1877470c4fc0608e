"""What the forms of the grammar mean: the module that comes out, not only that it comes back."""

from __future__ import annotations

import gc
import re
from contextlib import suppress

import numpy as np
import pytest

from distxla.errors import DistxlaError, HloSyntaxError
from distxla.ir.element_type import F32, FLOATS, TOKEN
from distxla.ir.instruction import Instruction, Span
from distxla.ir.module import Module
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.shape import UNBOUNDED, Layout, Shape
from distxla.text.parser import parse_module
from distxla.text.printer import print_instruction, print_module
from distxla.text.shapes import parse_shape, print_shape
from distxla.text.shardings import parse_domain
from tests.text.snippets import FEATURES, OPCODES, body


def instruction(text: str, name: str = "r") -> Instruction:
    return parse_module(text).entry_computation[name]


def entry(name: str) -> Module:
    return parse_module(FEATURES[name])


def test_single_instruction_makes_its_operands_parameters() -> None:
    computation = entry("single instruction").entry_computation
    assert [(i.name, i.opcode) for i in computation] == [("a", "parameter"), ("b", "parameter"), ("r", "multiply")]
    assert [p.op.number for p in computation.parameters] == [0, 1]  # type: ignore[attr-defined]
    assert computation.root == "r"


def test_single_instruction_without_name_is_called_like_its_opcode() -> None:
    assert entry("single instruction without name").entry_computation.root == "negate"


def test_without_entry_and_root_the_last_ones_are_meant() -> None:
    module = entry("no header, no ENTRY, no ROOT")
    assert (module.name, module.entry, module.entry_computation.root) == ("module_b", "b", "y")


def test_root_need_not_be_last() -> None:
    assert entry("root in the middle").entry_computation.root == "r"


def test_nested_operands_become_instructions_before_their_user() -> None:
    computation = entry("nested operands").entry_computation
    assert [i.opcode for i in computation] == ["parameter", "parameter", "maximum", "negate", "subtract", "add"]
    assert computation["r"].operands == ("maximum", "subtract")
    assert computation["maximum"].shape == Shape(F32, (4,))


def test_fresh_names_avoid_every_name_of_the_text() -> None:
    text = body(
        "x = f32[] parameter(0)", "y = f32[] abs(negate(x))", "negate = f32[] abs(y)", "ROOT negate.1 = f32[] abs(y)"
    )
    assert [i.name for i in parse_module(text).entry_computation] == ["x", "negate.2", "y", "negate", "negate.1"]


def test_inline_computation_gets_a_name() -> None:
    module = entry("inline computation")
    assert [c.name for c in module.computations] == ["region", "e"]
    assert module.entry_computation["r"].op.called_computations == ("region",)


def test_omitted_shapes_are_inferred() -> None:
    computation = entry("omitted shapes").entry_computation
    assert str(computation["t"].shape) == "(f32[4], pred[4])"
    assert str(computation["s"].shape) == "f32[4]"


def test_header() -> None:
    module = entry("header")
    assert (module.name, module.is_scheduled, module.replica_count, module.num_partitions) == ("jit_f", True, 2, 4)
    assert module.entry_layout is not None
    assert module.entry_layout.result.layout == Layout((0,))
    assert dict(module.header)["input_output_alias"] == "{ {}: (0, {}, may-alias) }"
    assert dict(module.header)["frontend_attributes"] == '{k="v",mesh={m = #sdy.mesh<["i"=8]>}}'


def test_tables_name_the_users_line() -> None:
    module = entry("tables")
    assert module.frame(module.entry_computation["x"]) == 'c"d.py:4 in f'


def test_annotations() -> None:
    computation = entry("annotations").entry_computation
    x, y = computation["x"], computation["y"]
    assert x.metadata is not None
    assert x.metadata.op_name == 'a "b" \\ c'
    assert x.metadata.get("source_line") == 3
    assert x.sharding is not None
    assert x.sharding.kind == "replicated"
    assert x.other == (("parameter_replication", "{true}"),)
    assert y.frontend_attributes == (("a", "1"), ("b", '{"x":1}'), ("c", "{{1}}"))
    assert y.backend_config == 'a"bé'
    assert y.control_predecessors == ("x",)
    assert y.other == (("statistics", "{visualizing_index=1,st=3.5}"), ("origin", '{{"a"}}'))


def test_async_sugar_wraps_the_opcode_in_a_computation() -> None:
    module = entry("async sugar")
    assert [c.name for c in module.computations] == ["add_f32", "async_reduce-scatter", "e"]
    wrapped = module["async_reduce-scatter"]
    assert [i.opcode for i in wrapped] == ["parameter", "reduce-scatter"]
    assert str(wrapped.root_instruction.shape) == "f32[2]"
    opcodes = [i.opcode for i in module.entry_computation]
    assert opcodes == ["parameter", "async-start", "async-update", "async-done"]
    start = module.entry_computation["s"]
    assert start.metadata is not None
    assert wrapped.root_instruction.metadata is None
    assert print_instruction(start) == (
        '%s = ((f32[4]), f32[2]) async-start(%x), calls=%async_reduce-scatter, metadata={op_name="rs"}'
    )


def test_async_sugar_keeps_the_thread() -> None:
    module = entry("async sugar on a thread")
    assert module["async_custom-call"].execution_thread == "t"
    assert module.entry_computation["s"].op.async_execution_thread == "t"  # type: ignore[attr-defined]


GROUPS = [
    ("{}", ()),
    ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
    ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ("[2,4]<=[2,2,2]T(2,0,1)", ((0, 2, 4, 6), (1, 3, 5, 7))),
    ("mesh['a'=2,'b'=4] {'a'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
    ("mesh['a'=2,'b'=4] {'b'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
    ("mesh['a'=2,'b'=4] {'b':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("mesh['a'=2,'b'=4] {'b':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", ((0, 2), (1, 3))),
    ("mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'b'}", ((3, 2), (1, 0))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "groups"), GROUPS)
def test_replica_groups(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    op = instruction(
        body("x = f32[4] parameter(0)", f"r = f32[8] all-gather(x), replica_groups={text}, dimensions={{0}}")
    ).op
    found: ReplicaGroups = op.replica_groups  # type: ignore[attr-defined]
    assert found.groups == groups


SHARDINGS = [
    ("{maximal device=3}", "maximal", (), ()),
    ("{devices=[2,2]<=[4]}", "devices", (2, 2), (0, 1, 2, 3)),
    ("{devices=[2,2]<=[2,2]T(1,0)}", "devices", (2, 2), (0, 2, 1, 3)),
    ("{devices=[2,2]3,1,2,0}", "devices", (2, 2), (3, 1, 2, 0)),
    ("{maximal_mesh[device_id=3]}", "maximal", (), ()),
    ("{mesh['x'=2,'y'=2], replicated}", "replicated", (), ()),
    ("{mesh['x'=2,'y'=2], [{'x'}, {'y', ?}]}", "mesh", (2, 2), (0, 1, 2, 3)),
    ("{mesh['x'=2,'y'=2] [{?}, {'x'}], replicated={'y'}}", "mesh", (1, 2, 2), (0, 1, 2, 3)),
    ("{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'}, {'y'}]}", "mesh", (2, 2), (0, 2, 1, 3)),
    ("{mesh['x'=4], [{'x':(2)2}, {}]}", "mesh", (2, 1, 2), (0, 2, 1, 3)),
    ("{mesh['x'=2,'y'=2], [{'y'}, {}], manual={'x'}}", "mesh", (2, 1, 2), (0, 2, 1, 3)),
    ("{mesh['x'=2,'y'=2], [{}, {}], manual={'y'}, unreduced={'x'}}", "mesh", (1, 1, 2, 2), (0, 2, 1, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "tile_dims", "devices"), SHARDINGS)
def test_sharding(text: str, kind: str, tile_dims: tuple[int, ...], devices: tuple[int, ...]) -> None:
    sharding = instruction(body(f"r = f32[4,4] parameter(0), sharding={text}")).sharding
    assert sharding is not None
    assert (sharding.kind, sharding.tile_dims, sharding.devices) == (kind, tile_dims, devices)


def test_the_shardings_of_a_domain() -> None:
    first, second = "{maximal device=1}", "{{replicated}, {devices=[2]<=[2]}}"
    both = [f'{{kind="sharding", entry={first}, exit={second}}}', f'{{exit={second}, kind="sharding", entry={first}}}']
    for text in both:
        assert [sharding.text for sharding in parse_domain(text)] == [first, second]
    assert parse_domain('{kind="other", entry={replicated}, exit={replicated}}') == ()


@pytest.mark.parametrize(
    "text",
    [
        '{kind="sharding", entry={replicated}}',
        "{entry={replicated}, exit={replicated}}",
        '{kind="sharding", entry={replicated}, entry={replicated}}',
        '{kind="sharding", inside={replicated}}',
    ],
)
def test_what_is_no_domain(text: str) -> None:
    with pytest.raises(HloSyntaxError, match="kind=, entry= and exit="):
        parse_domain(text)


def test_sharding_of_a_tuple_and_its_subgroups() -> None:
    text = "{{devices=[1,4,2]<=[8] last_tile_dim_replicate}, {devices=[2,2]<=[4] last_tile_dims={manual,replicated}}}"
    sharding = instruction(body(f"r = (f32[4], f32[4]) parameter(0), sharding={text}")).sharding
    assert sharding is not None
    assert [e.replicate_on_last for e in sharding.elements] == [True, False]
    assert sharding.elements[1].last_tile_dims == ("manual", "replicated")


def test_shape_parts() -> None:
    shape = parse_shape("f32[2,<=3,?]{2,0,1:T(8,128)(2,1)S(1)E(4)}")
    assert (shape.dims, shape.dynamic) == ((2, 3, UNBOUNDED), (False, True, True))
    assert shape.layout == Layout((2, 0, 1), ((8, 128), (2, 1)), 1, 4)
    assert print_shape(shape) == "f32[2,<=3,?]{2,0,1:T(8,128)(2,1)E(4)S(1)}"
    assert parse_shape("token[]").element_type is TOKEN


def test_a_brace_after_a_shape_opens_a_layout_only_before_a_number_or_colon() -> None:
    module = parse_module("HloModule m\nENTRY e (x: f32[2]) -> f32[2] { x = f32[2] parameter(0) }")
    assert module.entry_computation["x"].shape.layout is None


BITS = [
    ("f32[]", "nan", 0x7FC00000), ("f32[]", "-nan", 0xFFC00000), ("f32[]", "nan(0x7f)", 0x7F80007F),
    ("f32[]", "-0.0", 0x80000000), ("f32[]", "-0", 0), ("f32[]", "-1e-60", 0x80000000),
    ("f32[]", "1e-45", 1), ("f16[]", "nan(0x1)", 0x7C01), ("bf16[]", "-inf", 0xFF80),
    ("f64[]", "nan(0xfff)", 0x7FF0000000000FFF), ("u64[]", "-1", 0xFFFFFFFFFFFFFFFF), ("s8[]", "-1", 0xFF),
    ("f8e4m3fn[]", "nan", 0x7F), ("f8e4m3fn[]", "-nan", 0xFF), ("f8e4m3fnuz[]", "nan", 0x80),
    ("f8e5m2[]", "nan", 0x7E), ("f8e8m0fnu[]", "1", 127), ("pred[]", "1", 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "text", "bits"), BITS)
def test_literal_bits(shape: str, text: str, bits: int) -> None:
    literal = instruction(body(f"r = {shape} constant({text})")).op.literal  # type: ignore[attr-defined]
    assert int(literal.array.view(f"u{literal.shape.dtype.byte_size}")) == bits


ZEROS = ("-0", "-0.0", "-.0", "-0e0", "-1e-300", "0", "0.0")
WITH_ZERO = [t.name for t in FLOATS if t.name != "f8e8m0fnu"]


@pytest.mark.parametrize("element_type", WITH_ZERO)
def test_zeros_have_the_sign_that_xla_reads(element_type: str) -> None:
    """`-0` is an integer to XLA's parser, which has no sign of zero; it prints -0.0 as -0 nevertheless."""
    hlo = pytest.importorskip("jaxlib._hlo")
    for shape, literal in (
        (f"{element_type}[{len(ZEROS)}]", "{" + ", ".join(ZEROS) + "}"),
        *((f"{element_type}[]", zero) for zero in ZEROS),
    ):
        text = f"HloModule m\nENTRY e {{ ROOT r = {shape} constant({literal}) }}"
        printed = print_module(parse_module(text))
        assert hlo.hlo_module_from_text(printed).to_string() == hlo.hlo_module_from_text(text).to_string()
        array = instruction(text).op.literal.array  # type: ignore[attr-defined]
        (theirs,) = re.findall(r"constant\((.*)\)", hlo.hlo_module_from_text(text).to_string())
        assert np.signbit(array.astype(np.float64)).reshape(-1).tolist() == ["-" in zero for zero in theirs.split(", ")]


@pytest.mark.parametrize("element_type", ["c64", "c128"])
def test_both_parts_of_a_complex_zero_have_the_sign_that_xla_reads(element_type: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    text = body(f"ROOT r = {element_type}[4] constant({{(-0, -0.0), (-0.0, -0), (-0.0, -0.0), (1, -0.0)}})")
    array = instruction(text).op.literal.array  # type: ignore[attr-defined]
    assert np.signbit(array.real).tolist() == [False, True, True, False]
    assert np.signbit(array.imag).tolist() == [True, False, True, True]
    printed = print_module(parse_module(text))
    assert "{(0, -0.0), (-0.0, 0), (-0.0, -0.0), (1, -0.0)}" in printed
    assert hlo.hlo_module_from_text(printed).to_string() == hlo.hlo_module_from_text(text).to_string()


def test_literal_arrays() -> None:
    literal = instruction(body("r = (f32[2,2], s32[0], c64[1]) constant(({{1, 2}, {3, 4}}, {}, {(1, -2)}))")).op.literal  # type: ignore[attr-defined]
    table, empty, number = (e.array for e in literal.elements)
    np.testing.assert_array_equal(table, np.array([[1, 2], [3, 4]], np.float32))
    assert empty.shape == (0,)
    assert number[0] == 1 - 2j


def test_what_xla_makes_of_a_scalar_for_an_array_is_what_the_refusal_says() -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    text = body("ROOT r = f32[2,3]{1,0} constant(-2.5)")
    with pytest.raises(HloSyntaxError) as caught:
        parse_module(text)
    assert "constant({ { -2.5, 0, 0 }, { 0, 0, 0 } })" in hlo.hlo_module_from_text(text).to_string()
    advice = caught.value.message.partition("write ")[2]
    module = parse_module(body(f"ROOT r = {advice}"))
    hlo.hlo_module_from_text(print_module(module))
    assert [i.opcode for i in module.entry_computation] == ["constant", "broadcast"]


def test_elided_literal() -> None:
    assert instruction(body("r = f32[2,2] constant({...})")).op.literal.is_elided  # type: ignore[attr-defined]
    assert instruction(body("r = f32[2,2] constant({{1, ...}, {...}})")).op.literal.is_elided  # type: ignore[attr-defined]


PRINTED_FLOATS = [
    ("f32", 0.1, "0.1"), ("f32", 1.0, "1"), ("f32", 3.4028235e38, "3.4028235e+38"), ("f64", 0.1, "0.1"),
    ("f8e8m0fnu", 2.0**-127, "5.877471754111438e-39"), ("f8e8m0fnu", 2.0, "2"),
    ("bf16", 0.10009765625, "0.1"), ("f16", 65504.0, "6.55e+04"), ("f8e5m2", 57344.0, "6e+04"), ("f32", -0.0, "-0.0"),
    ("f64", -0.0, "-0.0"), ("f16", -0.0, "-0.0"), ("bf16", -0.0, "-0.0"), ("f8e5m2", -0.0, "-0.0"),
    ("f8e4m3fnuz", -0.0, "0"),    ("bf16", 0.0, "0"), ("f32", 0.0, "0"),
]  # fmt: skip


@pytest.mark.parametrize(("element_type", "value", "printed"), PRINTED_FLOATS)
def test_floats_print_as_the_shortest_text_that_reads_back(element_type: str, value: float, printed: str) -> None:
    made = instruction(body(f"r = {element_type}[] constant({value!r})"))
    text = print_instruction(made)
    assert instruction(body(text)) == made
    assert text == f"%r = {element_type}[] constant({printed})"


def test_spans_point_into_the_text() -> None:
    text = OPCODES["transpose"]
    r = instruction(text)
    line = text.split("\n").index("  ROOT r = f32[3,2] transpose(m), dimensions={1,0}") + 1
    assert r.span == Span(line, 8, 51)
    assert dict(r.attribute_spans) == {
        "name": Span(line, 8, 9),
        "shape": Span(line, 12, 20),
        "opcode": Span(line, 21, 30),
        "operands": Span(line, 30, 33),
        "dimensions": Span(line, 35, 51),
    }


def test_operands_may_carry_their_index() -> None:
    printed = print_instruction(instruction(body("x = f32[] parameter(0)", "r = tuple(x, x, x, x, x, x)")))
    assert printed == (
        "%r = (f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[]) tuple(%x, %x, %x, %x, %x, /*index=5*/%x)"
    )


# --- what XLA prints is read in fewer steps than other spellings of the same -----------------------------------------

PRINTED = (
    'f32[2]{0} add(f32[2]{0} %p, f32[2]{0} %p), metadata={op_type="add" op_name="jit(f)/add" source_file="f.py" '
    "source_line=3 source_column=7}"
)


@pytest.mark.parametrize(
    "spelling",
    [
        PRINTED.replace("%p,", "%p ,"),
        PRINTED.replace("f32[2]{0} %p,", "f32[2]{0} /*0*/ p,"),
        PRINTED.replace("f32[2]{0} %p,", "%p,"),
        PRINTED.replace("f32[2]{0} add", "f32[2]{0} /* as printed */ add"),
        PRINTED.replace("f32[2]{0} add", "f32[2]{ 0 }add"),
        PRINTED.replace('"add" op', '"add", op'),
        PRINTED.replace('"f.py"', '"\\146.py"'),
        PRINTED.replace("line=3 source", "line=3\n  source"),
    ],
)
def test_other_spellings_are_the_same_instruction(spelling: str) -> None:
    texts = [f"ENTRY e {{\n  %p = f32[2]{{0}} parameter(0)\n  ROOT r = {text}\n}}" for text in (spelling, PRINTED)]
    assert spelling != PRINTED
    assert instruction(texts[0]) == instruction(texts[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PRINTED.replace("f32[2]{0} %p)", "f32[3]{0} %p)"),
            "operands.shape: %p is f32[2], here it is said to be f32[3]",
        ),
        (PRINTED.replace("%p)", "%q)"), "found 'q'"),
        (PRINTED.replace("source_line=3", 'op_type="add"'), "the metadata has 'op_type' twice"),
        (PRINTED.replace("source_line", "line"), "found 'line'"),
        (PRINTED.replace("source_line=3", 'source_line="3"'), "expected an integer"),
        (PRINTED.replace("source_line=3", "source_line=9999999999999999999"), "expected an integer from"),
    ],
)
def test_mistakes_in_what_is_nearly_printed(text: str, message: str) -> None:
    with pytest.raises(DistxlaError) as caught:
        parse_module(f"ENTRY e {{\n  %p = f32[2]{{0}} parameter(0)\n  ROOT r = {text}\n}}")
    assert message in str(caught.value)


def test_collections_go_on_after_a_text_was_read() -> None:
    for text in ("ENTRY e { ROOT p = f32[] parameter(0) }", "ENTRY e {"):
        with suppress(HloSyntaxError):
            parse_module(text)
        assert gc.isenabled()
