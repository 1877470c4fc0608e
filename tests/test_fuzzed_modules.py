"""Whatever a text says, the answer is an error with its place, or the reference's results: no process dies."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator
from itertools import product
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError, InternalError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.guarded import Guarded
from tests.executable import require_executable
from tests.mutated import mutated
from tests.text.snippets import ALL

Array = np.ndarray[Any, Any]
TEXTS = ALL
MOST_BYTES = 1 << 22
# A mutated loop may never end; nothing else here takes a tenth of this on a busy machine.
REFERENCE_S, CHILD_S = 5, 30
# Their values are not the text's alone: the order of a sort that compares NaNs, vectors of a decomposition, user code.
INDEFINITE = {"sort", "topk", "cholesky", "triangular-solve", "custom-call", "rng", "rng-bit-generator"}


def assert_clear(error: DistxlaError, text: str) -> None:
    assert not isinstance(error, InternalError), f"{error}\n{text}"
    assert error.location is not None, f"{error}\n{text}"


def accepted(text: str) -> Module | None:
    """The module, None where it is refused; a refusal must say where."""
    try:
        module = parse_module(text, "<fuzzed>")
        verify_module(module)
        require_executable(module)
    except DistxlaError as error:
        assert_clear(error, text)
        return None
    return module


def parameters(module: Module) -> list[Shape]:
    return [leaf for parameter in module.entry_computation.parameters for leaf in parameter.shape.leaves()]


def is_small(module: Module) -> bool:
    leaves = [leaf for c in module.computations for i in c for leaf in i.shape.leaves()]
    return sum(leaf.byte_size for leaf in leaves) <= MOST_BYTES


def argument(shape: Shape, random: np.random.Generator, style: str) -> Array:
    """style: `plain` numbers, `nan` everywhere, or `wild`: NaN, infinities, zeros, tiny and huge ones among them."""
    element = shape.dtype
    flags = shape.dynamic or (False,) * shape.rank
    dims = tuple(int(random.integers(0, n + 1)) if flag else n for n, flag in zip(shape.dims, flags, strict=True))
    if element.kind == "pred":
        return random.integers(0, 2, dims).astype(np.bool_)
    if element.is_integer:
        if style != "plain" and element.bits >= 8:
            return random.integers(0, 256, (*dims, element.byte_size), np.uint8).view(element.dtype).reshape(dims)
        low, high = (
            (-(1 << (element.bits - 1)), 1 << (element.bits - 1)) if element.is_signed else (0, 1 << element.bits)
        )
        return random.integers(max(low, -3), min(high, 6), dims).astype(element.dtype)
    values = 2 * random.standard_normal(dims)
    if style == "nan":
        values = np.full(dims, np.nan)
    elif style == "wild":
        special = random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 1e-40], size=dims)
        values = np.where(random.random(dims) < 0.3, special, values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(element.dtype)


Run = Callable[[Module, list[Array], bool], list[Array]]


class Child:
    """A process that runs compiled programs between inaccessible pages; another one after one that has ended."""

    def __init__(self, run: Run) -> None:
        """run: a function of a module, called in the child with what `Child.run` is given."""
        self._run = run
        self._start()

    def _start(self) -> None:
        # no copy of this process: what Ray leaves in one ends the copy when it is freed there
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.pipe, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end, self._run), daemon=True)
        self.process.start()
        its_end.close()

    def run(self, module: Module, arrays: list[Array], *, front: bool) -> list[Array] | None:
        """What the compiled program returns; None for a loop that does not end."""
        try:
            self.pipe.send((module, arrays, front))
            found = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.close()
            ended = signal.Signals(-(self.process.exitcode or 0)).name
            self._start()
            endless = ended == "SIGALRM" and any(i.opcode == "while" for c in module.computations for i in c)
            assert endless, f"ended by {ended}"
            return None
        assert not isinstance(found, str), found
        return list(found)

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def _serve(pipe: Connection, run: Run) -> None:
    while True:
        try:
            module, arrays, front = pipe.recv()
        except EOFError:
            return
        signal.alarm(CHILD_S)
        found: list[Array] | str
        try:
            found = run(module, arrays, front)
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        signal.alarm(0)
        pipe.send(found)


def run_guarded(module: Module, arrays: list[Array], front: bool) -> list[Array]:
    return Guarded(front=front)(module, arrays)


def end_in_front(module: Module, arrays: list[Array], front: bool) -> list[Array]:
    if front:
        os.kill(os.getpid(), signal.SIGKILL)
    return arrays


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    child = Child(run_guarded)
    yield child
    child.close()


def test_a_child_that_ends_is_named_and_followed_by_another() -> None:
    child, module = Child(end_in_front), parse_module("ENTRY e { ROOT x = s32[] parameter(0) }")
    try:
        with pytest.raises(AssertionError, match="ended by SIGKILL"):
            child.run(module, [np.ones(1, np.int32)], front=True)
        assert child.run(module, [np.ones(1, np.int32)], front=False) == [1]
    finally:
        child.close()


def assert_alike(got: Array, wanted: Array) -> None:
    """Equal integers; floats within what other orders of a sum make of small numbers, in the same places finite."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted)
        return
    with np.errstate(all="ignore"):
        a, b = got.astype(np.complex128), wanted.astype(np.complex128)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isfinite(a), finite)
    scale = np.max(np.abs(b[finite]), initial=1e-3)
    assert np.all(np.abs(a[finite] - b[finite]) <= 1e-2 * scale)


def check(child: Child, text: str, seed: int, *, front: bool) -> bool:
    """Whether the text's results were compared; the test fails where they are wrong."""
    module = accepted(text)
    if module is None or (module.replica_count or 1) * (module.num_partitions or 1) > 1 or not is_small(module):
        return False
    opcodes = {i.opcode for c in module.computations for i in c}
    if any(not leaf.is_array for leaf in parameters(module)):
        return False
    numbers = np.random.default_rng(seed)
    style = str(numbers.choice(["plain", "plain", "wild", "nan"])) if not opcodes & INDEFINITE else "plain"
    arrays = [argument(leaf, numbers, style) for leaf in parameters(module)]
    try:
        wanted = run_reference(module, [arrays], Counts(1, 1), time_limit=REFERENCE_S)[0]
    except DistxlaError as error:
        assert_clear(error, text)
        return False
    try:
        got = child.run(module, arrays, front=front)
        if got is None:
            return False
        for a, b in zip(got, [leaf for leaf in wanted if leaf is not None], strict=True):
            if not opcodes & INDEFINITE:
                assert_alike(a, b)
    except AssertionError as error:
        raise AssertionError(f"{style} arguments, seed {seed}: {error}\n{text}") from error
    return True


def fuzz(child: Child, seed: int, mutants: int) -> None:
    choose = random.Random(seed)
    for number in range(mutants):
        text = mutated(TEXTS[choose.choice(sorted(TEXTS))], choose)
        check(child, text, 1000 * seed + number, front=bool(number % 2))


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("seed", range(10))
def test_mutants(child: Child, seed: int) -> None:
    fuzz(child, seed, 25)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 103))
def test_many_mutants(child: Child, seed: int) -> None:
    fuzz(child, seed, 40)


@pytest.mark.sampled(one_in=56)
@pytest.mark.parametrize(("name", "front"), [*product(sorted(TEXTS), [False, True])])
def test_no_access_beyond_arrays(child: Child, name: str, front: bool) -> None:
    check(child, TEXTS[name], 1, front=front)
