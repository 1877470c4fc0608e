"""Round trips of generated shapes, literals and modules; XLA reads the modules as well."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.text.lexer import Lexer, quoted
from distxla.text.literals import print_literal, read_literal
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from distxla.text.shapes import parse_shape, print_shape
from tests.samples import examples
from tests.strategies import SHAPES, STRINGS, array_shapes, literals, modules

SLOW_DATA = settings(
    deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(shape=SHAPES)
@SLOW_DATA
def test_shape(shape: Shape) -> None:
    assert parse_shape(print_shape(shape)) == shape
    assert parse_shape(print_shape(shape, layouts=False)) == shape.without_layout()


@given(literal=array_shapes().flatmap(literals))
@SLOW_DATA
def test_literal(literal: Literal) -> None:
    lexer = Lexer(print_literal(literal))
    assert read_literal(lexer, literal.shape) == literal
    assert lexer.at_end()


@given(text=STRINGS)
def test_string(text: str) -> None:
    assert Lexer(quoted(text)).string() == text


@given(module=modules())
@settings(SLOW_DATA, max_examples=examples(40))
def test_module(module: Module) -> None:
    assert parse_module(print_module(module)) == module


@given(module=modules())
@settings(SLOW_DATA, max_examples=examples(25))
def test_xla_reads_it(module: Module) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    hlo.hlo_module_from_text(print_module(module))


@given(data=st.data())
@settings(SLOW_DATA, max_examples=examples(15))
def test_everything_is_printed_once(data: st.DataObject) -> None:
    text = print_module(data.draw(modules()))
    assert print_module(parse_module(text)) == text
