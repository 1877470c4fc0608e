"""The whole text of what a wrong module gets: where, what was expected, what was found, a caret."""

from __future__ import annotations

import pickle

import pytest

from distxla.errors import DistxlaError, HloSyntaxError, VerificationError
from distxla.text.parser import parse_module

HEAD = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n"

SYNTAX: dict[str, tuple[str, str]] = {
    "empty": ("", "f:1:1: syntax: expected HloModule, a computation or an instruction, found the end of the text"),
    "garbage": (
        "hello world",
        "f:1:7: syntax: expected '(' after opcode 'hello', found 'world'\n    hello world\n          ^^^^^",
    ),
    "no computation": (
        "HloModule m\n",
        "f:2:1: syntax: expected a computation, found the end of the text",
    ),
    "module attribute": (
        "HloModule m, replicas=2\n",
        "f:1:14: syntax: expected a module attribute (one of alias_passthrough_params, "
        "allow_spmd_sharding_propagation_to_output, allow_spmd_sharding_propagation_to_parameters, buffer_donor, "
        "entry_computation_layout, frontend_attributes, input_output_alias, is_scheduled, num_partitions, "
        "origin_recovery_table, replica_count), found 'replicas'\n"
        "    HloModule m, replicas=2\n                 ^^^^^^^^",
    ),
    "unfinished computation": (
        "HloModule m\nENTRY e {\n",
        "f:2:9: syntax: expected the matching '}' of this computation, found the end of the text\n"
        "    ENTRY e {\n            ^",
    ),
    "empty computation": (
        "HloModule m\nENTRY e { }",
        "f:2:7: syntax: expected at least one instruction in computation 'e'\n    ENTRY e { }\n          ^^^^^",
    ),
    "unknown opcode": (
        HEAD + "  y = f32[4] ad(x, x)\n}",
        "f:5:14: syntax: HLO has no opcode 'ad'\n      y = f32[4] ad(x, x)\n                 ^^",
    ),
    "undefined operand": (
        HEAD + "  y = f32[4] add(x, %z)\n}",
        "f:5:21: syntax: expected the name of an instruction defined above in computation 'e', found 'z'\n"
        "      y = f32[4] add(x, %z)\n                        ^^",
    ),
    "element that is not there": (
        HEAD + "  t = (f32[4], f32[4]) tuple(x, x)\n  y = f32[4] add(x, %t#2)\n}",
        "f:6:21: syntax: t is (f32[4], f32[4]), which has no element 2\n"
        "      y = f32[4] add(x, %t#2)\n                        ^^^^",
    ),
    "element of an array": (
        HEAD + "  y = f32[4] add(x, x#0)\n}",
        "f:5:21: syntax: x is f32[4], which has no element 0\n"
        "      y = f32[4] add(x, x#0)\n                        ^^^",
    ),
    "element without a number": (
        HEAD + "  y = f32[4] add(x, x#)\n}",
        "f:5:23: syntax: expected the number of a tuple's element, found ')'\n"
        "      y = f32[4] add(x, x#)\n                          ^",
    ),
    "operand defined below": (
        HEAD + "  y = f32[4] abs(z)\n  z = f32[4] abs(x)\n}",
        "f:5:18: syntax: expected the name of an instruction defined above in computation 'e', found 'z'\n"
        "      y = f32[4] abs(z)\n                     ^",
    ),
    "name defined twice": (
        HEAD + "  x = f32[4] abs(x)\n}",
        "f:5:3: syntax: instruction 'x' is defined twice in computation 'e'\n      x = f32[4] abs(x)\n      ^^",
    ),
    "second root": (
        HEAD + "  ROOT y = f32[4] abs(x)\n  ROOT z = f32[4] abs(x)\n}",
        "f:6:3: syntax: a second ROOT in computation 'e'\n      ROOT z = f32[4] abs(x)\n      ^^^^",
    ),
    "second entry": (
        "HloModule m\nENTRY a { x = f32[] parameter(0) }\nENTRY b { x = f32[] parameter(0) }",
        "f:3:7: syntax: a second ENTRY; the first one is 'a'\n    ENTRY b { x = f32[] parameter(0) }\n          ^",
    ),
    "computation not defined": (
        HEAD + "  y = f32[4] call(x), to_apply=%g\n}",
        "f:5:32: syntax: expected the name of a computation defined above, found 'g'\n"
        "      y = f32[4] call(x), to_apply=%g\n                                   ^^",
    ),
    "unknown attribute": (
        HEAD + "  y = f32[4] abs(x), index=1\n}",
        "f:5:22: syntax: abs has no attribute 'index', only backend_config, control-predecessors, frontend_attributes, "
        "metadata, origin, parameter_replication, sharding, statistics\n"
        "      y = f32[4] abs(x), index=1\n                         ^^^^^",
    ),
    "repeated attribute": (
        HEAD + "  y = f32[4] transpose(x), dimensions={0}, dimensions={0}\n}",
        "f:5:44: syntax: attribute 'dimensions' is given twice\n"
        "      y = f32[4] transpose(x), dimensions={0}, dimensions={0}\n"
        "                                               ^^^^^^^^^^",
    ),
    "group mode": (
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        "ENTRY e { x = f32[4] parameter(0)\n ROOT r = f32[4] all-reduce(x), mode=global, to_apply=add }",
        "f:6:38: syntax: expected one of cross_replica, cross_partition, cross_replica_and_partition, flattened_id, "
        "found 'global'\n     ROOT r = f32[4] all-reduce(x), mode=global, to_apply=add }\n"
        "                                         ^^^^^^",
    ),
    "missing attribute": (
        HEAD + "  y = f32[4] transpose(x)\n}",
        "f:5:14: syntax: transpose needs attribute dimensions=\n"
        "      y = f32[4] transpose(x)\n                 ^^^^^^^^^",
    ),
    "missing comma": (
        HEAD + "  y = f32[4] add(x x)\n}",
        "f:5:20: syntax: expected ',' or ')' after an operand, found 'x'\n"
        "      y = f32[4] add(x x)\n                       ^",
    ),
    "missing operand": (
        HEAD + "  y = f32[4] add(x, )\n}",
        "f:5:21: syntax: expected an operand, found ')'\n      y = f32[4] add(x, )\n                        ^",
    ),
    "missing operands": (
        HEAD + "  y = f32[4] add(, x)\n}",
        "f:5:18: syntax: expected an operand or ')', found ','\n      y = f32[4] add(, x)\n                     ^",
    ),
    "missing shape": (
        HEAD + "  y = reshape(x)\n}",
        "f:5:7: syntax: expected the result's shape before reshape, which can't be inferred\n"
        "      y = reshape(x)\n          ^^^^^^^",
    ),
    "element type": (
        HEAD + "  y = f31[4] abs(x)\n}",
        "f:5:7: syntax: expected a shape, found element type 'f31'\n      y = f31[4] abs(x)\n          ^^^",
    ),
    "layout": (
        HEAD + "  y = f32[4]{1} abs(x)\n}",
        "f:5:13: syntax: expected a permutation of the 1 dimensions as the layout, found [1]\n"
        "      y = f32[4]{1} abs(x)\n                ^^",
    ),
    "huge shape": (
        HEAD + "  y = f32[4000000000,4000000000] abs(x)\n}",
        "f:5:7: syntax: an array of this shape is larger than 4611686018427387904 bytes\n"
        "      y = f32[4000000000,4000000000] abs(x)\n          ^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    "huge integer": (
        HEAD + "  y = f32[4] transpose(x), dimensions={99999999999999999999999}\n}",
        "f:5:40: syntax: expected an integer from -9223372036854775808 to 9223372036854775807\n"
        "      y = f32[4] transpose(x), dimensions={99999999999999999999999}\n"
        "                                           ^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    "literal count": (
        HEAD + "  y = f32[3] constant({1, 2})\n}",
        "f:5:23: syntax: expected 3 elements, found 2\n"
        "      y = f32[3] constant({1, 2})\n                          ^^^^^^",
    ),
    "literal rows": (
        HEAD + "  y = f32[2,1] constant({{1}, {2}, {3}})\n}",
        "f:5:25: syntax: expected 2 rows in dimension 0 of f32[2,1], found 3\n"
        "      y = f32[2,1] constant({{1}, {2}, {3}})\n                            ^",
    ),
    "literal of a scalar": (
        HEAD + "  y = f32[2,3]{1,0} constant(-2.5)\n}",
        "f:5:30: syntax: expected a literal of shape f32[2,3] in braces, found the scalar -2.5, which XLA's parser "
        "takes for the first element, with 0 for all others; if every element is meant, write "
        "f32[2,3] broadcast(f32[] constant(-2.5)), dimensions={}\n"
        "      y = f32[2,3]{1,0} constant(-2.5)\n                                 ^^^^",
    ),
    "literal of a scalar of another type": (
        HEAD + "  y = s32[2] constant(2.5)\n}",
        "f:5:23: syntax: expected '{' of dimension 0 of a literal of shape s32[2], found '2.5'\n"
        "      y = s32[2] constant(2.5)\n                          ^^^",
    ),
    "literal token": (
        HEAD + "  y = s32[3] constant({1, 2.5, 3})\n}",
        "f:5:27: syntax: expected a literal of type s32, found '2.5'\n"
        "      y = s32[3] constant({1, 2.5, 3})\n                              ^^^",
    ),
    "unclosed string": (
        HEAD + '  y = f32[4] abs(x), backend_config="abc\n}',
        "f:5:37: syntax: expected a string or a JSON dictionary, found '\"abc'\n"
        '      y = f32[4] abs(x), backend_config="abc\n                                        ^^^^',
    ),
    "cut off in a string": (
        HEAD + '  y = f32[4] abs(x), metadata={op_name="ab',
        "f:5:40: syntax: expected a string in double quotes, found a string that the end of the text cuts off\n"
        '      y = f32[4] abs(x), metadata={op_name="ab\n                                           ^^^',
    ),
    "cut off in a table": (
        'HloModule m\n\nFileNames\n1 "a.py"\n\nFileLocations\n1 {file_name_id=1 function_n',
        "f:7:29: syntax: expected a row such as {key=1 key=2}, found the end of the text\n"
        "    1 {file_name_id=1 function_n\n                                ^",
    ),
    "unclosed comment": (
        "HloModule m /* comment",
        "f:1:13: syntax: expected a computation's name, ENTRY or the end of the text, found a comment without end\n"
        "    HloModule m /* comment\n                ^^",
    ),
    "trailing text": (
        "HloModule m\ne { x = f32[] parameter(0) } }",
        "f:2:30: syntax: expected a computation's name, ENTRY or the end of the text, found '}'\n"
        "    e { x = f32[] parameter(0) } }\n                                 ^",
    ),
    "operand of a single instruction": (
        "y = f32[2] abs(x)",
        "f:1:16: syntax: expected the name of an instruction defined above in computation 'entry', found 'x'; "
        "an operand of a single instruction needs a shape\n    y = f32[2] abs(x)\n                   ^",
    ),
    "window": (
        "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n y = f32[] constant(0)\n"
        " r = f32[4] reduce-window(x, y), window={size=2 stride=1x1}\n}",
        "f:5:49: syntax: all parts of the window need the same number of dimensions\n"
        "     r = f32[4] reduce-window(x, y), window={size=2 stride=1x1}\n"
        "                                                    ^^^^^^^^^^",
    ),
}

VERIFICATION: dict[str, tuple[str, str]] = {
    "operand count": (
        HEAD + "  y = f32[4] add(x)\n}",
        "f:5:17: verify: add.operands: expected 2 operands, found 1\n      y = f32[4] add(x)\n                    ^^^",
    ),
    "operand shape": (
        HEAD + "  y = f32[4] abs(f32[3] x)\n}",
        "f:5:18: verify: operands.shape: x is f32[4], here it is said to be f32[3]\n"
        "      y = f32[4] abs(f32[3] x)\n                     ^^^^^^^^",
    ),
    "group mode that channel_id contradicts": (
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        "ENTRY e { x = f32[4] parameter(0)\n ROOT r = f32[4] all-reduce(x), channel_id=1, mode=flattened_id, "
        "to_apply=add }",
        "f:6:47: verify: all-reduce.C12: mode is flattened-id; XLA goes by channel_id and use_global_device_ids, which "
        "say cross-replica-and-partition\n"
        "     ROOT r = f32[4] all-reduce(x), channel_id=1, mode=flattened_id, to_apply=add }\n"
        "                                                  ^^^^^^^^^^^^^^^^^",
    ),
    "operand shape of an element": (
        HEAD + "  t = (f32[4], s32[]) parameter(1)\n  y = f32[4] abs(f32[] %t#1)\n}",
        "f:6:18: verify: operands.shape: %t#1 is s32[], here it is said to be f32[]\n"
        "      y = f32[4] abs(f32[] %t#1)\n                     ^^^^^^^^^^",
    ),
    "signature": (
        "HloModule m\nENTRY e (x: f32[4]) -> f32[3] {\n  x = f32[4] parameter(0)\n}",
        "f:2:9: verify: computation.signature: the result of e is f32[4], its signature says f32[3]\n"
        "    ENTRY e (x: f32[4]) -> f32[3] {\n            ^^^^^^^^^^^^^^^^^^^^^",
    ),
    "parameter twice": (
        HEAD + "  y = f32[4] parameter(0)\n}",
        "f:5:23: verify: parameter.number: parameter(0) is given twice\n"
        "      y = f32[4] parameter(0)\n                          ^^^",
    ),
    "parameter numbers": (
        HEAD + "  y = f32[4] parameter(2)\n}",
        "f:5:23: verify: parameter.number: 2 parameters have the numbers 0 to 1, found 2\n"
        "      y = f32[4] parameter(2)\n                          ^^^",
    ),
}


@pytest.mark.parametrize("name", SYNTAX)
def test_syntax_error(name: str) -> None:
    text, message = SYNTAX[name]
    with pytest.raises(HloSyntaxError) as caught:
        parse_module(text, "f")
    assert str(caught.value) == message


@pytest.mark.parametrize("name", VERIFICATION)
def test_verification_error(name: str) -> None:
    text, message = VERIFICATION[name]
    with pytest.raises(VerificationError) as caught:
        parse_module(text, "f")
    assert str(caught.value) == message


def test_a_broken_rule_points_at_its_attribute() -> None:
    text = HEAD + "  y = transpose(x), dimensions={1}\n}"
    with pytest.raises(VerificationError) as caught:
        parse_module(text, "f")
    assert str(caught.value).startswith("f:5:21: verify: transpose.C2: ")
    assert str(caught.value).endswith(
        "\n      y = transpose(x), dimensions={1}\n                        ^^^^^^^^^^^^^^"
    )


def test_the_users_own_line_is_named() -> None:
    text = (
        'HloModule m\n\nFileNames\n1 "model.py"\n\nFunctionNames\n1 "loss"\n\nFileLocations\n'
        "1 {file_name_id=1 function_name_id=1 line=36 end_line=36 column=28 end_column=30}\n\nStackFrames\n"
        "1 {file_location_id=1 parent_frame_id=1}\n\nENTRY e {\n  x = f32[4] parameter(0)\n"
        '  y = f32[4] ads(x), metadata={op_name="a" stack_frame_id=1}\n}'
    )
    with pytest.raises(HloSyntaxError) as caught:
        parse_module(text, "f")
    assert str(caught.value) == (
        "f:17:14: syntax: HLO has no opcode 'ads'\n"
        '      y = f32[4] ads(x), metadata={op_name="a" stack_frame_id=1}\n'
        "                 ^^^\n"
        "    from model.py:36:28 in loss"
    )


LITERAL_ERRORS = [
    ("f16[]", "65520", "65520 is out of range for f16"),
    ("bf16[]", "3.4e38", "3.4e38 is out of range for bf16"),
    ("f32[]", "1e39", "1e39 is out of range for f32"),
    ("f64[]", "1e400", "1e400 is out of range for f64"),
    ("f8e5m2[]", "61440", "61440 is out of range for f8e5m2"),
    ("f8e4m3fn[]", "500", "500 is out of range for f8e4m3fn"),
    ("f8e8m0fnu[]", "0", "0 is out of range for f8e8m0fnu"),
    ("f8e8m0fnu[]", "-1", "-1 is out of range for f8e8m0fnu"),
    ("f4e2m1fn[]", "8", "8 is out of range for f4e2m1fn"),
    ("f4e2m1fn[]", "nan", "f4e2m1fn has no NaN"),
    ("f8e4m3fn[]", "nan(0x1)", "a NaN of f8e4m3fn carries no payload"),
    ("f32[]", "nan(0x800000)", "a NaN of f32 carries a payload from 0x1 to 0x7fffff, found 0x800000"),
    ("f32[]", "nan(0x0)", "a NaN of f32 carries a payload from 0x1 to 0x7fffff, found 0x0"),
    ("f32[]", "true", "expected a literal of type f32, found 'true'"),
    ("s4[]", "8", "8 is out of range for s4, from -8 to 7"),
    ("u4[]", "-1", "-1 is out of range for u4, from 0 to 15"),
    ("u2[]", "4", "4 is out of range for u2, from 0 to 3"),
    ("s2[]", "-3", "-3 is out of range for s2, from -2 to 1"),
    ("u32[]", "-1", "-1 is out of range for u32, from 0 to 4294967295"),
    ("s64[]", "9223372036854775808", "9223372036854775808 is out of range for s64, from -9223372036854775808 to "
     "9223372036854775807"),
    ("s32[]", "1.0", "expected a literal of type s32, found '1.0'"),
    ("s32[]", "1_0", "expected a literal of type s32, found '1_0'"),
    ("pred[]", "2.5", "expected true, false or an integer as a literal of type pred, found '2.5'"),
    ("c64[]", "1", "expected a literal of type c64, as (real, imaginary), found '1'"),
    ("c64[]", "(1, 1e39)", "1e39 is out of range for f32"),
    ("token[]", "()", "a value of shape token[] has no literal"),
    ("f32[]", "{1}", "expected a literal of type f32, found '{'"),
    ("f32[]", "+1", "expected a literal of type f32, found '+'"),
    ("(f32[], f32[])", "(1)", "expected ',' and element 1 of a literal of shape (f32[], f32[]), found ')'"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "text", "message"), LITERAL_ERRORS)
def test_literal_error(shape: str, text: str, message: str) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        parse_module(f"HloModule m\nENTRY e {{\n ROOT c = {shape} constant({text})\n}}")
    assert caught.value.message == message


REJECTED_VALUES = [
    ("all-gather", "replica_groups=[2,2]<=[8]", "expected as many ids on both sides of '<=', found 4 and 8"),
    ("all-gather", "replica_groups=[2,4]<=[8]T(1)", "expected a permutation of 1 dimensions, found [1]"),
    ("all-gather", "replica_groups=[4096,4096]<=[16777216]",
     "expected positive dimension sizes of at most 1048576 devices together"),
    ("all-gather", "replica_groups={{0,1099511627776}}", "expected ids below 1048576, found 1099511627776"),
    ("all-gather", "replica_groups={ {0, 1}, {1048576, 2} }", "expected ids below 1048576, found 1048576"),
    ("all-gather", "replica_groups=mesh['x'=2] {'y'}", "the mesh has no axis 'y'"),
    ("all-gather", "replica_groups=mesh['x'=4] {'x':(1)4}", "(1)4 is no part of axis 'x', whose size is 4"),
    ("all-gather", "replica_groups=mesh['x'=4] {'x':(3)2}", "(3)2 does not divide axis 'x' of size 4"),
    ("all-gather", "replica_groups=0", "expected replica groups: '{', '[' or 'mesh', found '0'"),
    ("all-gather", "sharding={devices=[2,2]<=[8]}", "expected 4 devices, found 8"),
    ("all-gather", "sharding={replicated manual}", "the sharding says 'manual' after 'replicated'"),
    ("all-gather", "sharding={maximal}", "expected 'maximal' and 'device=' together"),
    ("all-gather", "sharding={shard}", "expected a sharding, found 'shard'"),
    ("all-gather", 'metadata={name="a"}', None),
    ("all-gather", "control-predecessors={q}", "expected the name of an instruction defined above, found 'q'"),
    ("all-gather", "frontend_attributes={a=1}", "expected a string or a JSON dictionary, found '1'"),
    ("all-gather", 'frontend_attributes={a="1",a="2"}', "frontend attribute 'a' is given twice"),
    ("all-gather", 'backend_config="\\q"', "expected a C escape, found '\\\\q'"),
    ("all-gather", 'backend_config={"a}', "expected a matching '}', found none"),
    ("all-gather", "origin={(}", "'}' closes nothing"),
    ("all-gather", "channel_id=x", "expected an integer, found 'x'"),
    ("all-gather", "use_global_device_ids=1", "expected 'true' or 'false', found '1'"),
    ("convolution", "dim_labels=b0f_0io->b1f",
     "expected the letters b and f and each of the digits from 0 once in every part"),
    ("convolution", "window={stride=1}", "expected the window to have a size"),
    ("convolution", "window={size=1 size=1}", "the window has 'size' twice"),
    ("slice", "slice={[0:1:0]}", "expected a stride from 1 to 9223372036854775807"),
    ("pad", "padding=1_1_-1", "expected interior padding that is not negative"),
    ("collective-permute", "source_target_pairs={{0,1,2}}", "expected a pair of integers, found 3 of them"),
    ("compare", "order=LINEAR", "expected TOTAL or PARTIAL, found 'LINEAR'"),
    ("compare", "type=FLOAT, order=PARTIAL", "'order' says again what another attribute says here"),
    ("compare", "type=DOUBLE", "expected FLOAT, TOTALORDER, SIGNED or UNSIGNED, found 'DOUBLE'"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "attribute", "message"), REJECTED_VALUES)
def test_attribute_value_error(opcode: str, attribute: str, message: str | None) -> None:
    dimensions = "dimensions={0}, " if opcode == "all-gather" else ""
    with pytest.raises(HloSyntaxError) as caught:
        parse_module(HEAD + f"  y = f32[4] {opcode}(x), {dimensions}{attribute}\n}}")
    assert message is None or caught.value.message == message


NESTED = {
    "shapes": "HloModule m\ne { x = " + "(" * 5000 + ")" * 5000 + " parameter(0) }",
    "operands": HEAD + "  y = f32[4] " + "abs(" * 5000 + "x" + ")" * 5000 + " }",
    "computations": HEAD + "  y = f32[4] call(x), to_apply={ x = f32[4] parameter(0) " * 500,
    "shardings": HEAD + "  y = f32[4] abs(x), sharding=" + "{" * 5000 + "}" * 5000,
    "literals": "HloModule m\ne { x = f32["
    + ",".join(["1"] * 500)
    + "] constant("
    + "{" * 500
    + "1"
    + "}" * 500
    + ") }",
    "metadata": HEAD + "  y = f32[4] abs(x), backend_config=" + "{" * 100_000,
}


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting_is_an_error_like_any_other(name: str) -> None:
    with pytest.raises(DistxlaError) as caught:
        parse_module(NESTED[name])
    assert isinstance(caught.value, HloSyntaxError)


@pytest.mark.parametrize(
    ("opcode", "hints"),
    [
        ("tranpose", ["hint: did you mean transpose?"]),
        ("all_reduce", ["hint: did you mean all-reduce?"]),
        ("add-start", None),
        ("frobnicate", []),
    ],
)
def test_a_misspelt_opcode_gets_a_proposal(opcode: str, hints: list[str] | None) -> None:
    with pytest.raises(DistxlaError) as caught:
        parse_module(HEAD + f"  y = f32[4] {opcode}(x)\n}}")
    assert getattr(caught.value, "__notes__", []) == (hints or [])
    assert ("no opcode" in caught.value.message) == (hints is not None)


def test_errors_survive_pickling() -> None:
    with pytest.raises(HloSyntaxError) as caught:
        parse_module("HloModule m, x=1", "f")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
