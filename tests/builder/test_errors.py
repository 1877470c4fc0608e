"""What is wrong is said at the call: the rule, the argument, and the caller's own line."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.verify.verifier import verify_module
from tests.executable import require_executable

B = Any
MISTAKES: list[tuple[Callable[[B, B, B], Any], str, str | None]] = []


def mistake(message: str, argument: str | None = None) -> Callable[[Callable[[B, B, B], Any]], None]:
    """A program of one line after `def`, for b, x: f32[2,3] and n: s32[4]."""

    def enter(program: Callable[[B, B, B], Any]) -> None:
        MISTAKES.append((program, message, argument))

    return enter


@mistake("transpose.C2: dimensions=[0, 0] does not permute", "permutation")
def transpose_repeats(b: B, x: B, n: B) -> B:
    return b.transpose(x, [0, 0])


@mistake("add.C1: element types differ: f32[2,3] and s32[2,3]; in add(lhs=f32[2,3], rhs=s32[2,3])")
def add_of_two_types(b: B, x: B, n: B) -> B:
    return b.add(x, b.convert_element_type(x, "s32"))


@mistake("broadcast: s32[4] and f32[2,3] differ in rank; broadcast_dimensions must say")
def operator_on_two_ranks(b: B, x: B, n: B) -> B:
    return x + n


@mistake("dimension 0 of s32[4] does not go with dimension 1 of f32[2,3]")
def sizes_that_do_not_broadcast(b: B, x: B, n: B) -> B:
    return b.mul(x, n, broadcast_dimensions=[1])


@mistake("broadcast_dimensions=[2] are not all dimensions of f32[2,3]", "broadcast_dimensions")
def broadcast_dimension_out_of_range(b: B, x: B, n: B) -> B:
    return b.mul(x, n, [2])


@mistake("broadcast_dimensions=[1, 0] of operands of equal rank 2", "broadcast_dimensions")
def broadcast_dimensions_of_equal_ranks(b: B, x: B, n: B) -> B:
    return b.mul(x, x, [1, 0])


@mistake("reduce.C4: dimension 2 is not one of the 2 of f32[2,3]", "dimensions")
def reduce_of_no_dimension(b: B, x: B, n: B) -> B:
    return b.reduce(x, 0, lambda p, q: p + q, [2])


@mistake("must be (f32[], f32[]) -> f32[], it is (f32[], f32[]) -> pred[]", "computation")
def reduce_by_a_comparison(b: B, x: B, n: B) -> B:
    return b.reduce(x, 0, lambda p, q: p < q, [0])


@mistake("argument: dimensions must be a sequence of integers, not 0", "dimensions")
def reduce_of_an_integer(b: B, x: B, n: B) -> B:
    return b.reduce(x, 0, lambda p, q: p + q, 0)


@mistake("concatenate.C1: f32[2,3] and s32[4]")
def concatenate_of_two_types(b: B, x: B, n: B) -> B:
    return b.concatenate([x, n], 0)


@mistake("reshape.C2: f32[2,3] has 6 elements, f32[4] has 4", "new_sizes")
def reshape_to_fewer(b: B, x: B, n: B) -> B:
    return b.reshape(x, [4])


@mistake("collapse.dimensions: [1, 0] are not consecutive dimensions", "dimensions")
def collapse_backwards(b: B, x: B, n: B) -> B:
    return b.collapse(x, [1, 0])


@mistake("slice.C3: [0:5:1] of dimension 0", "start_indices")
def slice_beyond(b: B, x: B, n: B) -> B:
    return b.slice(x, [0, 0], [5, 3])


@mistake("pad.C2: padding for 1 dimensions of f32[2,3]", "padding_config")
def pad_of_one_dimension(b: B, x: B, n: B) -> B:
    return b.pad(x, 0, [(1, 1, 0)])


@mistake("iota_dimension=2 is not a dimension of s32[4,8]", "iota_dimension")
def iota_of_no_dimension(b: B, x: B, n: B) -> B:
    return b.iota("s32[4,8]", 2)


@mistake("shape: 'f31[2]' is no shape: expected an element type, found 'f31'", "shape")
def parameter_of_no_shape(b: B, x: B, n: B) -> B:
    return b.parameter(2, "f31[2]")


@mistake("parameter.number: parameter 1 exists already", "number")
def parameter_twice(b: B, x: B, n: B) -> B:
    return b.parameter(1, "f32[]")


@mistake("element_type: there is no element type 'f8'", "new_element_type")
def convert_to_no_type(b: B, x: B, n: B) -> B:
    return b.convert_element_type(x, "f8")


@mistake("dot.C10: contracting dimension 1 of f32[2,3] goes with dimension 0 of f32[2,3]", "dimension_numbers")
def dot_general_of_sizes(b: B, x: B, n: B) -> B:
    return b.dot_general(x, x, (([1], [0]), ([], [])))


@mistake("dot.C10: contracting dimension 1 of f32[2,3] goes with dimension 0 of f32[2,3]; in dot(lhs=f32[2,3], rhs=f32")
def dot_of_sizes(b: B, x: B, n: B) -> B:
    return b.dot(x, x)


@mistake("window: padding 'some' is neither 'same' nor 'valid'", "padding")
def window_of_no_padding(b: B, x: B, n: B) -> B:
    return b.reduce_window(x, 0, lambda p, q: p + q, [1, 1], [1, 1], "some")


@mistake("window: window_strides=[1] for a window of 2 dimensions", "window_strides")
def window_of_one_stride(b: B, x: B, n: B) -> B:
    return b.reduce_window(x, 0, lambda p, q: p + q, [1, 1], [1])


@mistake("all-gather.C8: dimensions=[2] must be one dimension below 2", "all_gather_dim")
def gather_along_no_dimension(b: B, x: B, n: B) -> B:
    return b.all_gather(x, 2, 4)


@mistake("all-gather.shape: with groups of 4", "shard_count")
def gather_in_other_groups(b: B, x: B, n: B) -> B:
    return b.all_gather(x, 0, 2)


@mistake("all-reduce.C5: the groups must hold each id of 0..3 once", "replica_groups")
def groups_that_leave_out(b: B, x: B, n: B) -> B:
    return b.all_reduce(x, lambda p, q: p + q, [[0, 1]])


@mistake("does not divide into 4 parts", "split_count")
def split_that_does_not_divide(b: B, x: B, n: B) -> B:
    return b.all_to_all(x, 0, 0, 4)


@mistake("collective-permute.C1: a target is negative or in two pairs", "source_target_pairs")
def permute_to_one_twice(b: B, x: B, n: B) -> B:
    return b.collective_permute(x, [(0, 1), (2, 1)])


@mistake("must be (f32[2,3]) -> pred[], it is (f32[2,3]) -> f32[2,3]", "condition")
def while_without_predicate(b: B, x: B, n: B) -> B:
    return b.while_(lambda s: s, lambda s: s, x)


@mistake("conditional.C5: the index is f32[2,3]")
def conditional_by_a_matrix(b: B, x: B, n: B) -> B:
    return b.conditional(x, [lambda p: p, lambda p: p], [n, n])


@mistake("conditional.C1: 2 branches and operands for 1", "branch_operands")
def conditional_without_operand(b: B, x: B, n: B) -> B:
    return b.conditional(n[0], [lambda p: p, lambda p: p], [n])


@mistake("constant: [s32[4], 1] is no array of numbers")
def list_of_operands(b: B, x: B, n: B) -> B:
    return b.neg([n, 1])


@mistake("call.C1: ", "computation")
def call_with_other_arguments(b: B, x: B, n: B) -> B:
    return b.call(identity_of_a_scalar(), x)


@mistake("computation: computation must be a module, a builder or a function, not 'add'", "computation")
def call_by_name(b: B, x: B, n: B) -> B:
    return b.all_reduce(x, "add")


@mistake("belongs to the builder errors, not to lambda", "rhs")
def operand_of_another_builder(b: B, x: B, n: B) -> B:
    return b.map(x, lambda p: p + n)


@mistake("get-tuple-element.C1: the operand is f32[2,3], not a tuple")
def element_of_an_array(b: B, x: B, n: B) -> B:
    return b.get_tuple_element(x, 0)


@mistake("operand: tuple.", "operand")
def negate_a_tuple(b: B, x: B, n: B) -> B:
    return b.neg(b.tuple([x, n]))


@mistake("index: 1.5 is no integer, slice, ... or None")
def index_by_a_float(b: B, x: B, n: B) -> B:
    return x[1.5]


@mistake("rng-bit-generator.kind: rng_mersenne is none of", "algorithm")
def no_such_generator(b: B, x: B, n: B) -> B:
    return b.rng_bit_generator("mersenne", np.zeros(2, np.uint64), "u32[2]")


@mistake("sharding: '{devices}' is none", "sharding")
def no_sharding(b: B, x: B, n: B) -> B:
    return b.set_sharding("{devices}")


@mistake("select.C1: ")
def select_by_numbers(b: B, x: B, n: B) -> B:
    return b.select(x, x, x)


@mistake("gather.C20: slice_sizes=[1] are not one for each dimension", "slice_sizes")
def gather_sizes(b: B, x: B, n: B) -> B:
    return b.gather(x, n, [0], [0], [1], [0], 1)


@mistake("fft.kind: DCT is none of FFT, IFFT, RFFT, IRFFT", "fft_type")
def no_such_transform(b: B, x: B, n: B) -> B:
    return b.fft(x, "dct", [3])


def identity_of_a_scalar() -> Any:
    b = dx.XlaBuilder("identity")
    b.parameter(0, "f32[]")
    return b.build()


@pytest.mark.parametrize(("program", "message", "argument"), MISTAKES, ids=[m[0].__name__ for m in MISTAKES])
def test_mistake(program: Callable[[B, B, B], Any], message: str, argument: str | None) -> None:
    b = dx.XlaBuilder("errors", replica_count=4, num_partitions=1)
    x, n = b.parameter(0, "f32[2,3]", "x"), b.parameter(1, "s32[4]", "n")
    with pytest.raises(dx.VerificationError) as caught:
        program(b, x, n)
    error = caught.value
    assert message in error.message
    assert argument is None or f"argument {argument} of " in error.message
    lines, first = inspect.getsourcelines(program)
    where = error.location
    assert where is not None
    body = next(k for k, line in enumerate(lines) if line.lstrip().startswith("def ")) + 1
    assert (where.file, where.line) == (__file__, first + body)
    assert where.text.strip() == lines[body].strip()
    assert where.text[where.column - 1 : where.end_column - 1] in lines[body]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    module = b.build(x)  # the builder goes on, without the instruction that was wrong
    assert len(module.entry_computation.instructions) - len((x, n)) < 5
    verify_module(module, 4, 1)


def test_the_message_as_a_whole() -> None:
    b = dx.XlaBuilder("whole")
    x = b.parameter(0, "f32[2,3]", "x")
    with pytest.raises(dx.VerificationError) as caught:
        y = 1 + b.transpose(x, permutation=[0, 0])  # noqa: F841
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert str(caught.value) == (
        f"{__file__}:{line}:17: verify: transpose.C2: dimensions=[0, 0] does not permute the 2 dimensions of f32[2,3]; "
        "argument permutation of transpose(operand=f32[2,3], permutation=[0, 0])\n"
        "            y = 1 + b.transpose(x, permutation=[0, 0])  # noqa: F841\n"
        "                    " + "^" * len("b.transpose(x, permutation=[0, 0])")
    )


def test_a_missing_parameter_is_found_at_build() -> None:
    b = dx.XlaBuilder("gap")
    b.parameter(0, "f32[]")
    b.parameter(2, "f32[]"); line = inspect.currentframe().f_lineno  # type: ignore[union-attr]  # noqa: E702 # fmt: skip
    with pytest.raises(dx.VerificationError, match="2 comes where 1 is due") as caught:
        b.build()
    assert caught.value.location is not None
    assert caught.value.location.line == line


def test_nothing_to_build() -> None:
    with pytest.raises(dx.VerificationError, match="empty has no instructions"):
        dx.XlaBuilder("empty").build()


def test_counts_must_be_positive() -> None:
    with pytest.raises(dx.VerificationError, match="replica_count=0 must be positive"):
        dx.XlaBuilder("counts", replica_count=0)


def test_later_reports_name_the_callers_line() -> None:
    """What the verifier or the compiler says about a built module, too."""
    b = dx.XlaBuilder("later")
    x = b.parameter(0, "f32[2]")
    b.custom_call("nobody", [x], "f32[2]"); line = inspect.currentframe().f_lineno  # type: ignore[union-attr]  # noqa: E702 # fmt: skip
    with pytest.raises(dx.UnsupportedOpError) as caught:
        require_executable(b.build())
    where = caught.value.location
    assert where is not None
    assert (where.file, where.line) == (__file__, line)


def test_in_a_function_that_is_run_as_a_computation_its_own_line_is_named() -> None:
    b = dx.XlaBuilder("outer")
    x = b.parameter(0, "f32[4]")

    def body(state: B) -> B:
        return state + b.constant(1.0)

    with pytest.raises(dx.VerificationError, match="belongs to the builder outer, not to body") as caught:
        b.while_(lambda s: s[0] < 1, body, x)
    assert caught.value.location is not None
    assert caught.value.location.text.strip() == "return state + b.constant(1.0)"
