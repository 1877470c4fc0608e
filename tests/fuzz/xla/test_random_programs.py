"""A few of the random programs on both sides; `make fuzz-xla` runs a thousand."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.executable import require_executable
from tests.fuzz.xla.__main__ import answers
from tests.fuzz.xla.both import by_distxla, by_reference, differences
from tests.fuzz.xla.program import RandomProgram
from tests.fuzz.xla.regrouped import regrouped
from tests.fuzz.xla.worker import Answer
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture

PROGRAMS = 8  # on both sides: 3 s of processor time, of which XLA's start is the half
TYPES = {"f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2", "c64", "c128", "pred", "s8", "s16", "s32", "s64", "u8"}
FLOW = {"while", "conditional", "call"}
LATER = {"select-and-scatter", "reduce-precision", "copy"}
ENDS = ("start", "done")
COLLECTIVES = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}


def test_programs_agree_with_xla() -> None:
    pytest.importorskip("jax")
    found = dict(answers(range(PROGRAMS), processes=1))
    assert found == dict.fromkeys(range(PROGRAMS), Answer())


def test_seeds_repeat() -> None:
    once, again = RandomProgram(3), RandomProgram(3)
    assert once.text == again.text
    np.testing.assert_equal(once.arguments(), again.arguments())
    assert once.text != RandomProgram(4).text


def test_programs_are_executable_and_varied() -> None:
    opcodes, types, devices = set(), set(), set()
    for seed in range(80):
        program = RandomProgram(seed)
        module = parse_module(program.text, f"random_{seed}.hlo")
        verify_module(module)
        require_executable(module)
        devices.add((program.replicas, program.partitions))
        instructions = [i for computation in module.computations for i in computation]
        opcodes.update(i.opcode for i in instructions)
        types.update(leaf.dtype.name for i in instructions for leaf in i.shape.leaves())
    assert types >= TYPES
    assert opcodes >= FLOW | COLLECTIVES | {
        "dot",
        "convolution",
        "sort",
        "scatter",
        "gather",
        "reduce-window",
        "tanh",
        *LATER,
    }
    assert devices == {(1, 1), (2, 1), (4, 1), (1, 2), (1, 4)}


@pytest.mark.sampled(one_in=18, first=("124", "105"))
@pytest.mark.parametrize("seed", range(100, 130))
def test_kernels_for_a_gpu_agree_with_the_reference(seed: int) -> None:
    program = RandomProgram(seed)
    assert not differences(program, by_distxla(program, "nvptx"), by_reference(program))


@pytest.mark.sampled(one_in=10)
@pytest.mark.parametrize("seed", range(200, 240))
def test_instructions_in_other_computations_give_the_same(seed: int) -> None:
    program = RandomProgram(seed)
    assert not differences(program, by_distxla(program, is_regrouped=True), by_reference(program))


def test_regrouped_programs_are_varied() -> None:
    opcodes = set()
    for seed in range(80):
        module = parse_module(RandomProgram(seed).text)
        again = regrouped(module, seed)
        assert print_module(again) == print_module(regrouped(module, seed))
        opcodes.update(i.opcode for computation in again.computations for i in computation)
    expected = {"fusion", "call", "async-start", "async-update", "async-done"}
    expected |= {f"{opcode}-{end}" for opcode in ("all-reduce", "all-gather", "collective-permute") for end in ENDS}
    assert expected <= opcodes


@pytest.mark.sampled(one_in=4, first=("11",))
@pytest.mark.parametrize("seed", [0, 1, 5, 11])
def test_a_wrong_bit_is_a_difference(seed: int) -> None:
    program = RandomProgram(seed)
    got, wanted = by_distxla(program), by_reference(program)
    assert not differences(program, got, wanted)
    k = next(k for k, value in enumerate(program.results) if value.size and value.element != "pred")
    wrong = np.array(got[0][k])
    wrong.reshape(-1).view(np.uint8)[-1] ^= 0x40  # of the highest byte
    got[0][k] = wrong
    assert len(differences(program, got, wanted)) == 1


def test_what_ends_the_process_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's process cannot be started."""
    monkeypatch.setattr("tests.fuzz.xla.worker.sys.executable", "/bin/false")
    ((_, answer),) = answers([0], processes=1)
    assert answer.wrong == "start ended the process: status 1"
