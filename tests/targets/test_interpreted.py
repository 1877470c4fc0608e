"""Programs with interpreted kernels: the same plan, entry, order and communication; NumPy's answers on the buffers."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.cli.main import main
from distxla.compiler.cache_key import program_key
from distxla.compiler.compile import compile_module
from distxla.compiler.plan import plan_program
from distxla.compiler.plan.buffers import Kernel, Plan
from distxla.compiler.stages import emit
from distxla.errors import CompileError, ExecutionError
from distxla.ir.counts import Counts
from distxla.ops.elementwise_binary import Multiply
from distxla.oracle.lockstep import run_reference
from distxla.program.options import CompileOptions
from distxla.targets.registry import native_target, target_named, target_names
from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.collectives.worked_examples_cases import CASES
from tests.compiler.runner import Devices
from tests.diagnosis.golden import NAMED, check_run
from tests.programs import PROGRAMS, ShardedProgram
from tests.runtime import hand_made
from tests.runtime.random_modules import RandomModule
from tests.samples import in_turn

SUM = """HloModule sum, replica_count=2
add { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT r = s32[] add(a, b) }
ENTRY main {
  x = s32[4] parameter(0)
  id = u32[] replica-id()
  n = s32[] convert(id)
  rows = s32[4] broadcast(n), dimensions={}
  y = s32[4] add(x, rows)
  total = s32[4] all-reduce(y), to_apply=add
  ROOT z = s32[4] multiply(total, y)
}
"""
X = np.arange(4, dtype=np.int32)


@pytest.mark.sampled(one_in=9, first=("fsdp-optimized",))
@pytest.mark.parametrize(
    ("program", "form"), in_turn(PROGRAMS, ["optimized", "partitioned"]), ids=lambda p: getattr(p, "name", p)
)
def test_programs_agree_with_xla(program: ShardedProgram, form: str) -> None:
    module = parse_module(program.text(form))
    program.assert_results(run_module("interpreted", module, program.arguments, 1, program.devices))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", CASES)
def test_collectives_give_worked_results(name: str) -> None:
    module, (replicas, partitions), operands, results = CASES[name]
    arguments = [[np.array(operand)] for operand in operands]
    outs = run_module("interpreted", module, arguments, replicas, partitions)
    assert [leaf.tolist() for (leaf,) in outs] == [np.array(wanted).tolist() for wanted in results]


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("seed", range(8))
def test_loops_branches_and_swapped_leaves_agree_bit_for_bit(seed: int) -> None:
    made = RandomModule(seed, 2, pairs=seed % 2 == 1)
    module = parse_module(made.text)
    random = np.random.default_rng(seed)
    shapes = [leaf for p in module.entry_computation.parameters for leaf in p.shape.leaves()]
    arguments = [[random.integers(-9, 9, s.dims).astype(np.int32) for s in shapes] for _ in range(2)]
    wanted = run_module("compiled", module, arguments, 2)
    found = run_module("interpreted", module, arguments, 2)
    assert [[leaf.tobytes() for leaf in row] for row in found] == [[leaf.tobytes() for leaf in row] for row in wanted]


def test_no_kernel_is_code_and_the_rest_is_the_same() -> None:
    module = parse_module(SUM)
    targets = None, "interpreted"
    code, calls = (str(emit(module, "llvm-unoptimised", Counts(2, 1), CompileOptions(target=t))) for t in targets)
    program = compile_module(module, Counts(2, 1), CompileOptions(target="interpreted"))
    native = compile_module(module, Counts(2, 1))
    assert program.kernels
    assert 'define internal void @"kernel_' in code
    assert 'define internal void @"kernel_' not in calls
    assert {kernel.symbol for kernel in program.kernels} <= set(program.image.imports)
    assert (program.sites, program.communicators) == (native.sites, native.communicators)
    assert program.debug.steps == native.debug.steps
    assert native.kernels == ()
    assert native.module is None


def test_a_wrong_kernel_is_right_when_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two targets differ in is the kernel's."""
    right = Multiply.emit_element
    monkeypatch.setattr(
        Multiply, "emit_element", lambda op, emit, shape, index, a, b: right(op, emit, shape, index, a, a)
    )
    assert not _agrees("compiled")
    assert _agrees("interpreted")


def test_a_wrong_plan_is_wrong_when_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both targets do wrong is the plan's, or the communication's."""
    right = plan_program.plan

    def wrong(*given: Any) -> Plan:
        plan = right(*given)
        *steps, last = plan.steps
        assert isinstance(last, Kernel)
        return dataclasses.replace(plan, steps=(*steps, dataclasses.replace(last, operands=last.operands[1:] * 2)))

    monkeypatch.setattr(plan_program, "plan", wrong)
    assert not _agrees("compiled")
    assert not _agrees("interpreted")


def _agrees(executor: str) -> bool:
    module, arguments = parse_module(SUM), [[X], [X * 3]]
    found = run_module(executor, module, arguments, 2)
    wanted = run_reference(module, arguments, Counts(2, 1))
    return [row[0].tolist() for row in found] == [row[0].tolist() for row in wanted]


def test_random_states_go_on_from_run_to_run() -> None:
    module = parse_module("HloModule m\nENTRY main { ROOT s = u64[2] rng-get-and-update-state(), delta=3 }\n")
    devices = Devices(compile_module(module, Counts(1, 1), CompileOptions(target="interpreted")))
    first, second = (devices([[]])[0][0] for _ in range(2))
    assert (second - first).tolist() == [3, 0]
    devices.close()


def test_a_key_of_its_own_in_the_cache() -> None:
    module = parse_module(SUM)
    keys = [
        program_key(module, Counts(2, 1), CompileOptions(target=target))
        for target in (None, native_target().name, "interpreted")
    ]
    assert keys[0] == keys[1] != keys[2]


def test_targets_are_the_folders() -> None:
    assert target_names() == ["interpreted", "nvptx", "x86_64"]
    assert [target_named(name).name for name in target_names()] == target_names()
    with pytest.raises(CompileError, match="no target 'vax'; the targets are interpreted, nvptx, x86_64"):
        target_named("vax")


# a folder beside the others, whose package is all that there is of it
ADDED = "class T:\n    name, backend = 'vax', '{backend}'\nTARGET = T()\n"
ASKED = """
import sys
from distxla import targets
from distxla.targets import nvptx
nvptx.DEVICE_FILE = ""  # as where no driver is
targets.__path__.append(sys.argv[1])
from distxla.targets.registry import backends, target_of_backend
assert not {"numpy", "llvmlite", "distxla.ir", "distxla.compiler"} & sys.modules.keys()
from distxla.cli.run import command
chosen = next(option.type.choices for option in command.params if option.name == "backend")
print(backends(), [target_of_backend(backend) for backend in backends()], [*chosen])
"""


@pytest.mark.parametrize("backend", ["vector", "gpu", "cpu"])
def test_a_folder_that_is_added_is_a_backend(backend: str, tmp_path: Path) -> None:
    """The command line and clusters know it without a change; "cpu" stays this processor's target."""
    (tmp_path / "vax").mkdir()
    (tmp_path / "vax" / "__init__.py").write_text(ADDED.format(backend=backend))
    ended = subprocess.run([sys.executable, "-c", ASKED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    target = {"interpreted": "interpreted", backend: "vax", "cpu": native_target().name}
    chosen = sorted({*target, "gpu", "reference"})
    assert ended.stdout == f"{sorted(target)} {[target[name] for name in sorted(target)]} {chosen}\n"


@pytest.mark.usefixtures("no_gpu_driver")
@pytest.mark.parametrize(
    ("backend", "refused"),
    [
        ("gpu", "the gpu backend is not available: there is no /dev/nvidiactl"),
        ("interpreted", "m.hlo: No such file or directory"),
    ],
)
def test_a_backend_is_refused_until_a_target_serves_it(
    backend: str, refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line refuses it by its name, before it looks for the module."""
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "m.hlo"), "--backend", backend])
    assert ended.value.code == 2
    assert refused in capsys.readouterr().err


# --- processes


@pytest.mark.cluster
def test_the_command_runs_it_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sum.hlo"
    path.write_text(SUM)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--backend", "interpreted", "--compare", "reference", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code in (0, None)
    assert found["backend"] == "interpreted"


@pytest.mark.cluster
@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", ["ring_3", "all_reduces_in_different_orders", "nested_loops"])
def test_deadlocks_are_told_as_ever(name: str) -> None:
    case = NAMED[name]
    with dx.Cluster(replicas=case.replicas, backend="interpreted") as cluster:
        executables = {devices: cluster.compile(module, devices) for devices, module in case.modules()}
        arguments: dict[int, Any] = {d: [np.arange(4, dtype=np.float32)] for ds in executables for d in ds}
        with pytest.raises(dx.DeadlockError) as caught:
            cluster.run(executables, arguments)
    assert caught.value.diagnosis is not None
    check_run(name, caught.value.diagnosis, by_chance=True)


@pytest.mark.cluster
def test_a_kernel_that_fails_is_named() -> None:
    module = parse_module("HloModule m\nENTRY main {\n  x = s32[4] parameter(0)\n  ROOT y = s32[4] negate(x)\n}\n")
    program = compile_module(module, Counts(1, 1), CompileOptions(target="interpreted"))
    (kernel,) = program.kernels
    broken = dataclasses.replace(kernel, operands=())
    with dx.Cluster(backend="interpreted") as cluster:
        step = hand_made.adopted(cluster, dataclasses.replace(program, kernels=(broken,)))
        with pytest.raises(ExecutionError, match="device 0: interpreting y \\(fusion\\): IndexError"):
            step([[X]])
