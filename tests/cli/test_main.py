"""The command as users call it: statuses, error texts, what is printed. Nothing here starts a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from distxla.cli import main as main_module
from distxla.errors import ArgumentError
from tests.cli.called import call
from tests.programs import PROGRAMS

MODULE = """HloModule double, num_partitions=2
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] add(x, x)
}
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "double.hlo"
    path.write_text(MODULE)
    return str(path)


def test_a_reference_run_says_where_what_and_how_long(module: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    out = str(tmp_path / "out.npz")
    np.savez(tmp_path / "args.npz", **{"arg0@0": np.array([1, 2], np.float32), "arg0@1": np.array([3, 4], np.float32)})
    status, printed, errors = call(
        capsys, "run", module, "--backend", "reference", "--args", str(tmp_path / "args.npz"), "--out", out,
        "--repeat", "2",
    )  # fmt: skip
    assert (status, errors) == (0, "")
    with np.load(out) as file:
        assert {key: file[key].tolist() for key in file.files} == {"out0@0": [2, 4], "out0@1": [6, 8]}
    assert "double (" in printed
    assert "2 devices (1 replica x 2 partitions), reference backend" in printed
    assert "out0   f32[2]  2 4 (device 0)" in printed
    assert "2 steps:" in printed
    assert "generated" not in printed


def test_generated_arguments_are_named(module: str, capsys) -> None:  # type: ignore[no-untyped-def]
    status, printed, _ = call(capsys, "run", module, "--backend", "reference", "--seed", "3")
    assert status == 0
    assert "arg0 generated from seed 3" in printed


def test_generated_constants_are_asked_for_and_named(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "elided.hlo"
    path.write_text("ENTRY main { few = f32[9] constant({...}) ROOT r = f32[9] negate(few) }")
    status, _, errors = call(capsys, "run", str(path), "--backend", "reference")
    assert status != 0
    assert errors.count("elides the constant's value") == 1
    assert "`distxla run --generate-constants`" in errors
    asked = ("run", str(path), "--backend", "reference", "--generate-constants", "--seed", "3")
    status, printed, _ = call(capsys, *asked)
    assert status == 0
    assert "  constants  few generated from seed 3" in printed
    assert json.loads(call(capsys, *asked, "--json")[1])["generated_constants"] == [["few"]]


def test_json_is_one_object_with_the_timings(module: str, capsys) -> None:  # type: ignore[no-untyped-def]
    status, printed, _ = call(
        capsys, "run", module, "--backend", "reference", "--json", "--repeat", "3", "--compare", "reference"
    )
    found = json.loads(printed)
    assert status == 0
    assert found.keys() >= {"parse_s", "compile_s", "start_s", "steps_s", "cached", "devices"}
    assert found["devices"] == 2
    assert len(found["steps_s"]) == 3
    assert found["cached"] is False
    assert found["comparisons"][0]["fits"] is True


def test_results_that_differ_exit_with_1_and_a_table(module: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    np.savez(tmp_path / "args.npz", arg0=np.array([1, 2], np.float32))
    np.savez(tmp_path / "expected.npz", out0=np.array([2, 5], np.float32))
    status, printed, _ = call(
        capsys, "run", module, "--backend", "reference", "--args", str(tmp_path / "args.npz"), "--expected",
        str(tmp_path / "expected.npz"),
    )  # fmt: skip
    assert status == 1
    assert "in 2 of 2 arrays" in printed
    assert "[1]: 4.0 instead of 5.0" in printed


NAMED = """HloModule step, input_output_alias={ {1}: (0, {}, may-alias), {2}: (1, {}, may-alias) }, replica_count=2
ENTRY main {
  w = f32[2] parameter(0), metadata={op_name="params[\\'w\\']"}
  b = f32[2] parameter(1), metadata={op_name="params[\\'b1\\']"}
  s = f32[2] add(w, b)
  ROOT r = (f32[2], f32[2], f32[2]) tuple(s, w, b)
}
"""


def test_results_in_the_place_of_arguments_have_their_names(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "m.hlo").write_text(NAMED)
    ones = np.ones(2, np.float32)
    np.savez(tmp_path / "args.npz", arg0=ones, arg1=ones)
    np.savez(tmp_path / "expected.npz", out0=ones, out1=ones, out2=3 * ones)
    files = "--args", str(tmp_path / "args.npz"), "--expected", str(tmp_path / "expected.npz")
    status, printed, _ = call(capsys, "run", str(tmp_path / "m.hlo"), "--backend", "reference", *files)
    assert status == 1
    rows = printed.partition("  worst\n")[2].splitlines()
    assert [row.split()[:-4] for row in rows] == [
        ["out0", "0,", "1", "f32", "1", "1", "0.0001", "2/2", "[0]:"],
        ["out2", "params['b1']", "0,", "1", "f32", "2", "0.67", "0.0001", "2/2", "[0]:"],
    ]


BAD = [
    (["run", "{module}", "--partitions", "4"], "num_partitions=2, --partitions says 4"),
    (["run", "none.hlo"], "cannot read none.hlo: No such file or directory"),
    (["run", "{module}", "--args", "none.npz"], "cannot read none.npz"),
    (["run", "{module}", "--args", "{module}"], "is not an .npz file"),
    (["run", "{module}", "--expected", "{module}"], "is not an .npz file"),
    (["run", "{module}", "--out", "/none/out.npz", "--backend", "reference"], "cannot write /none/out.npz"),
    (["run", "{module}", "--out", "x", "--trace", "./x"], "--out and --trace name the same file: ./x"),
    (["run", "{module}", "--backend", "gpu"], "gpu backend is not available: there is no /dev/nvidiactl"),
    (["compile", "{module}", "--backend", "gpu"], "gpu backend is not available: there is no /dev/nvidiactl"),
    (["run", "{module}", "--tolerance", "nan"], "--tolerance: expected a number, found nan"),
    (["run", "{module}", "--infeed", "x.npz"], "x.npz: no program has an infeed"),
    (
        ["run", "{module}", "--trace", "x.json", "--backend", "reference"],
        "--trace needs the backend of a cluster (cpu, interpreted)",
    ),
    (["run", "{module}", "--trace", "/none/x.json"], "cannot write /none/x.json: No such file or directory"),
    (
        ["run", "{module}", "--backend", "reference", "--address", "x"],
        "--address needs the backend of a cluster (cpu, interpreted)",
    ),
    (["run", "{module}", "--devices-per-host", "1,1"], "which takes --address: an embedded Ray has one"),
    (["run", "{module}", "--repeat", "0"], "error: usage: invalid value for '--repeat'"),
    (["run", "{module}", "--time-limit", "0"], "error: usage: invalid value for '--time-limit'"),
    (["run", "{module}", "--nonsense"], "error: usage: no such option: --nonsense"),
    (["run"], "error: usage: missing argument 'MODULE"),
    (["walk"], "error: usage: no such command: walk"),
    (["check", "{cut}"], "syntax"),
    (["check", "{wrong}"], "verify"),
    (["compile", "{module}", "--emit", "ptx", "--gpu-arch", "sm_20"], "'sm_20': kernels are made for sm_75"),
    (["compile", "{module}", "--gpu-arch", "sm_80"], "--gpu-arch needs --emit ptx"),
    (["compile", "{module}", "--emit", "elf"], "'elf' is not one of 'hlo', 'schedule', 'buffers'"),
    (["ops", "frobnicate"], "frobnicate"),
]


@pytest.mark.usefixtures("no_gpu_driver")
@pytest.mark.parametrize(("args", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_mistakes_exit_with_2_and_one_message(
    args: list[str], message: str, module: str, tmp_path: Path, capsys
) -> None:  # type: ignore[no-untyped-def]
    cut, wrong = tmp_path / "cut.hlo", tmp_path / "wrong.hlo"
    cut.write_text(MODULE[:60])
    wrong.write_text(MODULE.replace("f32[2] add", "f32[3] add"))
    status, printed, errors = call(capsys, *(a.format(module=module, cut=cut, wrong=wrong) for a in args))
    assert status == 2
    assert printed == ""
    assert message in errors
    assert "Traceback" not in errors


def test_our_own_bugs_say_so(module: str, capsys, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("distxla.cli.programs.read_world", lambda *a: 1 / 0)
    status, _, errors = call(capsys, "check", module)
    assert status == 1
    assert errors.startswith("error: internal: ZeroDivisionError: division by zero\nnote: this is a bug in distxla;")


def test_interruption_has_its_own_status(module: str, capsys, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distxla.cli.programs.read_world", interrupt)
    status, _, errors = call(capsys, "check", module)
    assert (status, errors.strip()) == (130, "interrupted")


def test_check_describes_a_module(capsys) -> None:  # type: ignore[no-untyped-def]
    program = next(p for p in PROGRAMS if p.name == "halo_stencil")
    status, printed, _ = call(capsys, "check", str(program.folder / "partitioned.hlo"))
    assert status == 0
    assert "jit_f: 6 computations, " in printed
    assert "devices 0-7 of 1 replica x 8 partitions" in printed
    assert "1 all-reduce, 4 collective-permute" in printed
    assert "  ok\ndeadlock: none can happen on the 8 devices\nwhat communicates: " in printed
    *_, halo, largest = printed.splitlines()
    assert halo.split()[:2] == ["ppermute.11", "collective-permute"]
    assert largest.split() == ["pmax.6", "all-reduce", "{0-7}", "4", "B", "?", "?", "gen_jax_programs.py:139:30"]


def test_the_list_of_steps_names_the_words_of_parameters(capsys) -> None:  # type: ignore[no-untyped-def]
    status, out, err = call(capsys, "compile", "--list-passes")
    assert (status, err) == (0, "")
    names = [line for line in out.splitlines() if line and line[0] != " "]
    assert names[:3] == ["host-calls", "reduction-order{order=as-written}", "one-thread"]
    assert names[-1].startswith("standard: host-calls,reduction-order,one-thread,")
    assert "\n    order: as-written, rank, tree, ring.\n" in out


def test_help_of_every_command_names_its_options() -> None:
    runner = CliRunner()
    for name in main_module.COMMANDS:
        result = runner.invoke(main_module.commands, [name, "--help"])
        assert result.exit_code == 0
        assert "Usage:" in result.output


@pytest.mark.parametrize("args", [["--help"], ["check", str(PROGRAMS[0].folder / "partitioned.hlo")]], ids=str)
def test_quick_commands_load_neither_ray_nor_llvm(args: list[str]) -> None:
    program = (
        "import sys\nfrom distxla.cli.main import main\n"
        "try: main(sys.argv[1:])\nfinally: print(sorted({'ray', 'llvmlite', 'rich', 'scipy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "odd.hlo"
    target = 'custom_call_target="a\x1b[31m"'
    path.write_text(f"HloModule odd\nENTRY main {{ ROOT b = f32[2] custom-call(), {target} }}\n")
    for command in (["check"], ["run", "--backend", "reference"]):
        status, printed, errors = call(capsys, *command, str(path))
        assert status == 2
        assert "a\\x1b[31m" in printed + errors
        assert "\x1b" not in printed + errors
    assert str(ArgumentError("a\x1b[31mb\nc")) == "argument: a\\x1b[31mb\nc"
