"""Common functions in objects of their own: the same results, and texts that no program changes."""

from __future__ import annotations

import ctypes

import pytest
from llvmlite import ir

from distxla.emit.native_function import CommonFunction
from distxla.errors import CompileError
from distxla.program.image import Image
from distxla.targets.common_functions import Separated, separated
from distxla.targets.native import finish
from distxla.targets.native.load import load_image
from distxla.targets.x86_64.link import link
from tests.targets.link_cases import program

I32 = ir.IntType(32)
KIND = ir.FunctionType(I32, [I32])


def function(
    module: ir.Module, name: str, *, common: bool = True, internal: bool = True
) -> tuple[ir.Function, ir.IRBuilder]:
    made = (CommonFunction if common else ir.Function)(module, KIND, name)
    if internal:
        made.linkage = "internal"
    made.attributes.add("noinline")
    return made, ir.IRBuilder(made.append_basic_block("entry"))


def table(module: ir.Module, *, constant: bool) -> ir.GlobalVariable:
    kind = ir.ArrayType(I32, 4)
    found = ir.GlobalVariable(module, kind, "table")
    found.linkage, found.global_constant = "internal", constant
    found.initializer = ir.Constant(kind, [10, 20, 30, 40])
    return found


def built(nodes: int = 0, *, constant: bool = True, added: int = 1) -> ir.Module:
    """main(i) = lookup(i) + added, lookup(i) = weighed(table[i]).

    nodes: metadata of the program that comes first.  constant: whether the table is.
    """
    module = ir.Module(f"of {nodes} nodes")
    for k in range(nodes):
        module.add_metadata([I32(100 + k)])
    weighed, builder = function(module, "weighed")
    (x,) = weighed.args
    is_large = builder.icmp_signed(">", x, I32(15))
    with builder.if_then(is_large, likely=False):
        builder.ret(builder.mul(x, I32(2)))
    builder.ret(x)
    numbers = table(module, constant=constant)
    lookup, builder = function(module, "lookup")
    place = builder.gep(numbers, [I32(0), lookup.args[0]])
    value = builder.load(place, typ=I32)
    value.set_metadata("range", module.add_metadata([I32(0), I32(41)]))
    builder.ret(builder.call(weighed, [value]))
    main, builder = function(module, "main", common=False, internal=False)
    builder.ret(builder.add(builder.call(lookup, [main.args[0]]), I32(added)))
    finish.describe(module)
    return module


def linked(parts: Separated) -> Image:
    return link([finish.compile_object(text) for text in (parts.program, *parts.common)])


def called(image: Image, argument: int) -> int:
    loaded = load_image(program(image))
    try:
        found: int = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address_of("main"))(argument)
        return found
    finally:
        loaded.close()


@pytest.mark.parametrize(("argument", "result"), [(0, 11), (1, 41), (3, 81)])
def test_parts_compute_what_the_whole_does(argument: int, result: int) -> None:
    parts = separated(built())
    assert len(parts.common) == 2
    assert called(linked(parts), argument) == result
    assert called(link([finish.compile_object(built())]), argument) == result


def test_the_text_of_a_common_function_does_not_depend_on_the_program() -> None:
    first, second = separated(built()), separated(built(3, added=5))
    assert first.common == second.common
    assert first.program != second.program
    assert called(linked(second), 0) == 15


def test_it_stays_where_it_refers_to_what_only_the_program_has() -> None:
    parts = separated(built(constant=False))
    assert len(parts.common) == 1
    assert 'define internal i32 @"lookup"' in parts.program
    assert called(linked(parts), 1) == 41


def test_a_program_without_common_functions_is_one_module() -> None:
    module = ir.Module("alone")
    main, builder = function(module, "main", common=False, internal=False)
    builder.ret(main.args[0])
    finish.describe(module)
    parts = separated(module)
    assert parts.common == ()
    assert called(linked(parts), 7) == 7


def test_exported_functions_keep_their_names() -> None:
    module = built()
    module.globals["weighed"].linkage = ""
    parts = separated(module)
    assert sum('define i32 @"weighed"' in text for text in parts.common) == 1
    assert linked(parts).symbols.keys() == {"main", "lookup", "weighed"}


def test_what_no_object_defines_is_an_error() -> None:
    parts = separated(built())
    with pytest.raises(CompileError, match="symbol 'lookup' is defined nowhere"):
        link([finish.compile_object(parts.program)])


def test_what_two_objects_define_is_an_error() -> None:
    objects = [finish.compile_object(text) for text in (separated(built()).program, *separated(built()).common)]
    with pytest.raises(CompileError, match="symbol 'weighed' is defined twice"):
        link([*objects, objects[-1]])
