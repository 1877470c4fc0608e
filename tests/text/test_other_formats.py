"""What is no HLO text: recognised by what it is, and the lines that the error gives make HLO text of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distxla as dx
from distxla.errors import ArgumentError, DistxlaError, HloSyntaxError
from distxla.text.files import read_file
from distxla.text.other_formats import decoded, format_of_text
from distxla.text.parser import parse_module
from distxla.text.printer import print_module

HLO = "HloModule scaled\n\nENTRY main {\n  x = f32[3]{0} parameter(0)\n  ROOT r = f32[3]{0} add(x, x)\n}\n"
STABLEHLO = (
    "// a comment\nmodule @scaled attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "  func.func public @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {\n"
    "    %0 = stablehlo.add %arg0, %arg0 : tensor<3xf32>\n    return %0 : tensor<3xf32>\n  }\n}\n"
)
OTHER_MLIR = (
    "module {\n  func.func @main(%a: i32) -> i32 {\n    %0 = arith.addi %a, %a : i32\n    return %0 : i32\n  }\n}\n"
)
BESIDE_STABLEHLO = {
    "its argument": "return %x : tensor<3xf32>",
    "chlo alone": "%0 = chlo.erf_inv %x : tensor<3xf32> -> tensor<3xf32>\n    return %0 : tensor<3xf32>",
    "sdy alone": "%0 = sdy.sharding_constraint %x <@m, [{}]> : tensor<3xf32>\n    return %0 : tensor<3xf32>",
}
BEGINNINGS = {
    "named module": "module @m {\n}",
    "module with attributes": 'module attributes {a = "b"} {\n}',
    "module with a function": "module {\n  func.func @f() { return }\n}",
    "module with a mesh": 'module {\n  sdy.mesh @mesh = <["x"=2]>\n}',
    "module with a public function": "module {\n  func.func public @f() { return }\n}",
    "module by its full name": "builtin.module @m {\n}",
    "mesh alone": 'sdy.mesh @mesh = <["x"=2]>\nfunc.func @main() { return }',
    "private function alone": "func.func private @f() { return }",
    "generic form": '"builtin.module"() ({\n}) : () -> ()',
    "function alone": "func.func @main() { return }",
    "location alias": '#loc = loc("f.py")\nmodule @m {\n}',
    "type alias": "!t = tensor<2xf32>\nmodule @m {\n}",
}


def _length(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _length(rest) if rest else bytes([low])


def _field(number: int, content: bytes) -> bytes:
    return _length(number << 3 | 2) + _length(len(content)) + content


def _proto() -> bytes:
    hlo = pytest.importorskip("jaxlib._hlo")
    return bytes(hlo.hlo_module_from_text(HLO).as_serialized_hlo_module_proto())


def _bytecode() -> bytes:
    jax = pytest.importorskip("jaxlib._jax")
    return bytes(jax.mlir.hlo_to_stablehlo(_proto()))


FILES = {
    "StableHLO": ("m.mlir", lambda: STABLEHLO.encode(), "StableHLO (MLIR text)"),
    "StableHLO by the name of HLO": ("m.hlo", lambda: STABLEHLO.encode(), "StableHLO (MLIR text)"),
    "MLIR bytecode": ("m.mlirbc", _bytecode, "MLIR bytecode"),
    "module proto": ("m.hlo.pb", _proto, "a serialized HloModuleProto"),
    "HLO proto": (
        "m.pb",
        lambda: _field(1, _proto()) + _field(3, b""),
        "a serialized HloModuleProto within an HloProto",
    ),
    "snapshot": (
        "a 'b'.pb",
        lambda: _field(1, _field(1, _proto())) + _field(2, b"x") + b"\x28\x01",
        "a serialized HloModuleProto within an HloProto",
    ),
}


def _refusal(function: Any, *args: Any) -> DistxlaError:
    with pytest.raises((ArgumentError, HloSyntaxError)) as caught:
        function(*args)
    return caught.value


def _code(error: DistxlaError) -> str:
    (code,) = (note for note in error.__notes__ if "\n" in note)
    return code


@pytest.mark.parametrize(("name", "content", "what"), FILES.values(), ids=FILES)
def test_the_lines_of_the_error_make_hlo_text(
    name: str, content: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content())
    error = _refusal(parse_module, read_file(name), name)
    assert what in error.message
    pytest.importorskip("jaxlib")
    exec(_code(error), {})
    (made,) = set(tmp_path.glob("*.hlo")) - {tmp_path / name}
    assert [i.opcode for i in parse_module(made.read_bytes()).entry_computation] == ["parameter", "add"]


@pytest.mark.parametrize(("variable", "content"), [("text", STABLEHLO), ("data", _proto)], ids=["text", "bytes"])
def test_what_comes_from_no_file_is_named_by_a_variable(
    variable: str, content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = content() if callable(content) else content
    error = _refusal(dx.parse, found)
    pytest.importorskip("jaxlib")
    exec(_code(error), {variable: found})
    assert parse_module(read_file("module.hlo")).entry_computation.root_instruction.opcode == "add"


def test_the_guide_has_the_same_lines() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "dumps.md").read_text()
    assert f"```python\n{_code(_refusal(parse_module, STABLEHLO, 'step.mlir'))}\n```" in guide


def test_the_counts_that_get_lost_are_named() -> None:
    error = _refusal(parse_module, STABLEHLO, "m.mlir")
    assert str(error).startswith("m.mlir:2:1: syntax: expected HLO text, found StableHLO (MLIR text)\n")
    assert error.__notes__[-1] == "HLO text made of it has no counts: run it with --partitions 4"


@pytest.mark.parametrize("text", BEGINNINGS.values(), ids=BEGINNINGS)
def test_mlir_is_told_by_its_beginning(text: str) -> None:
    assert "MLIR text" in _refusal(parse_module, text).message


def test_mlir_of_other_dialects_has_no_hlo() -> None:
    error = _refusal(parse_module, OTHER_MLIR)
    assert error.message == "expected HLO text, found MLIR text without StableHLO"
    assert error.__notes__ == ["convert it to StableHLO first"]


@pytest.mark.parametrize("body", BESIDE_STABLEHLO.values(), ids=BESIDE_STABLEHLO)
def test_a_module_of_stablehlo_may_have_no_operation_of_it(body: str) -> None:
    text = (
        'module @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n  sdy.mesh @m = <["a"=1]>\n'
        f"  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {{\n    {body}\n  }}\n}}\n"
    )
    found = format_of_text(text, "m.mlir")
    assert found is not None
    assert (found.what, found.is_convertible) == ("StableHLO (MLIR text)", True)


@pytest.mark.parametrize("text", [HLO, "\n" + HLO, "module { x = f32[] parameter(0) }"], ids=["", "blank line", "name"])
def test_bytes_of_hlo_text_are_hlo_text(text: str) -> None:
    assert parse_module(text.encode()) == parse_module(text)


@pytest.mark.parametrize("data", [b"\n\xff", b"\n\x7f\x01", b"\n\x00\xff", b"ML\xff", b"\n" + b"\xff" * 20])
def test_other_bytes_are_no_text(data: bytes) -> None:
    assert "is not UTF-8" in _refusal(parse_module, data + b"\xff", "m.pb").message


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    text = "\ufeffENTRY main { ROOT c = f32[2] constant({1, 2}) }"
    for form in (text, text.encode()):
        assert print_module(parse_module(form)) == print_module(parse_module(text[1:]))
    for form in ("\ufeffENTRY main { ROOT c = f32[2] what(1) }", b"\xef\xbb\xbfENTRY main { ROOT c = f32[2] what(1) }"):
        with pytest.raises(HloSyntaxError) as caught:
            parse_module(form)
        location = caught.value.location
        assert location is not None
        assert (location.line, location.column) == (1, 30)
    with pytest.raises(ArgumentError, match="byte 4 is not UTF-8"):
        parse_module(b"\xef\xbb\xbfa\xff")
    assert format_of_text(decoded(b"\xef\xbb\xbfmodule @m { stablehlo.x }", "m"), "m") is not None
