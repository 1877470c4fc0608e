"""The verifier: one broken module for every rule that concerns more than one instruction, and where it points."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError, UnsupportedOpError, VerificationError
from distxla.ir.element_type import F32
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Layout, Shape
from distxla.ops.cholesky import Cholesky
from distxla.ops.fft import Fft
from distxla.text.parser import parse_module
from tests.executable import require_executable

PROGRAMS = sorted((Path(__file__).parents[2] / "programs").glob("*/*.hlo"))

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"


def _module(entry: str, before: str = "", header: str = "") -> str:
    return f"HloModule m{header}\n{before}ENTRY main {{\n{entry}\n}}\n"


def _error(text: str, **counts: int) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify_module(parse_module(text, "m.hlo"), **counts)
    return caught.value


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_real_programs_are_accepted(path: Path) -> None:
    verify_module(parse_module(path.read_text(), str(path)))


ASYNC = "wrapped {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n"
START = "  p = f32[4] parameter(0)\n  s = ((f32[4]), f32[4], u32[]) async-start(p), calls=wrapped\n"
REDUCE_START = "  p = f32[4] parameter(0)\n  s = f32[4] all-reduce-start(p), to_apply=add\n"
SEND = "  p = f32[4] parameter(0)\n  t = token[] after-all()\n  s = (f32[4], u32[], token[]) send(p, t), channel_id=1\n"

BROKEN = {
    # rule: (text, the text that the error points at)
    "all-reduce-start.pair": [
        (_module(REDUCE_START + "  ROOT n = f32[4] negate(p)", ADD), "s = f32[4] all-reduce-start"),
        (_module(REDUCE_START + "  ROOT n = f32[4] negate(s)", ADD), "s = f32[4] all-reduce-start"),
        (
            _module(
                REDUCE_START + "  d = f32[4] all-reduce-done(s)\n  e = f32[4] all-reduce-done(s)\n"
                "  ROOT n = f32[4] add(d, e)",
                ADD,
            ),
            "s = f32[4] all-reduce-start",
        ),
    ],
    "all-reduce-done.pair": [
        (_module("  p = f32[4] parameter(0)\n  ROOT d = f32[4] all-reduce-done(p)"), "all-reduce-done(p)"),
    ],
    "async-start.pair": [
        (_module(START + "  ROOT n = f32[4] negate(p)", ASYNC), "s = ((f32[4])"),
    ],
    "async-start.caller": [
        (
            _module(
                START
                + "  d = f32[4] async-done(s)\n  c = f32[4] call(p), to_apply=wrapped\n  ROOT n = f32[4] add(d, c)",
                ASYNC,
            ),
            "c = f32[4] call",
        ),
    ],
    "send-done.pair": [
        (_module(SEND + "  ROOT d = token[] send-done(s), channel_id=2"), "channel_id=2"),
        (
            _module(SEND + "  ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true"),
            "is_host_transfer=true",
        ),
    ],
    "recv-done.pair": [
        (_module(SEND + "  ROOT d = (f32[4], token[]) recv-done(s), channel_id=1"), "recv-done(s)"),
    ],
    "channel.kind": [
        (
            _module(
                SEND + "  d = token[] send-done(s), channel_id=1\n"
                "  r = f32[4] all-reduce(p), channel_id=1, replica_groups={{0}}, to_apply=add\n"
                "  ROOT n = f32[4] negate(r)",
                ADD,
            ),
            "channel_id=1, replica_groups",
        ),
        (
            _module(
                SEND + "  d = token[] send-done(s), channel_id=1\n"
                "  r = (f32[4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n"
                "  e = (f32[4], token[]) recv-done(r), channel_id=1, is_host_transfer=true\n  ROOT n = f32[4] negate(p)"
            ),
            "channel_id=1, is_host_transfer=true",
        ),
    ],
    "channel.id": [
        (
            _module("  p = f32[4] parameter(0)\n  ROOT a = f32[4] all-gather(p), dimensions={0}, channel_id=-1"),
            "channel_id=-1",
        ),
    ],
    "module.layout": [
        (
            _module("  ROOT p = f32[4] parameter(0)", header=", entry_computation_layout={(f32[4],f32[4])->f32[4]}"),
            "p = f32[4] parameter(0)",
        ),
        (
            _module("  ROOT p = f32[4] parameter(0)", header=", entry_computation_layout={(f32[5]{0})->f32[4]{0}}"),
            "f32[4]",
        ),
        (
            _module("  ROOT p = f32[4] parameter(0)", header=", entry_computation_layout={(f32[4]{0})->f32[5]{0}}"),
            "f32[4]",
        ),
    ],
    "add.C1": [
        (_module("  p = f32[4] parameter(0)\n  q = s32[4] parameter(1)\n  ROOT r = f32[4] add(p, q)"), "add"),
    ],
}


@pytest.mark.parametrize(("rule", "text", "place"), [(rule, *case) for rule, cases in BROKEN.items() for case in cases])
def test_breaking_a_rule_names_it_and_its_place(rule: str, text: str, place: str) -> None:
    error = _error(text)
    where = error.location
    assert where is not None
    if rule != "add.C1":  # the exact id is the op's affair; here only that it is passed on
        assert error.message.startswith(f"{rule}: ")
    line = text.splitlines()[where.line - 1]
    assert place.split("\n")[0] in line
    assert where.file == "m.hlo"
    assert str(error).startswith(f"m.hlo:{where.line}:{where.column}: verify: ")


def test_a_layout_with_another_number_of_parameters() -> None:
    text = _module("  ROOT p = f32[4] parameter(0)", header=", entry_computation_layout={()->f32[4]{0}}")
    assert _error(text).message.startswith("module.layout: ")


def test_a_transfer_may_be_completed_out_of_a_tuple() -> None:
    text = _module(
        SEND + "  c = ((f32[4], u32[], token[]), f32[4]) tuple(s, p)\n"
        "  g = (f32[4], u32[], token[]) get-tuple-element(c), index=0\n  ROOT d = token[] send-done(g), channel_id=1"
    )
    verify_module(parse_module(text))


def test_a_computation_has_one_asynchronous_caller_and_its_done_may_name_it() -> None:
    verify_module(parse_module(_module(START + "  ROOT d = f32[4] async-done(s), calls=wrapped", ASYNC)))


GROUPED = "  p = f32[4] parameter(0)\n  ROOT r = f32[4] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add"


def test_groups_are_compared_with_known_counts() -> None:
    verify_module(parse_module(_module(GROUPED, ADD)))
    verify_module(parse_module(_module(GROUPED, ADD)), replicas=4, partitions=1)
    error = _error(_module(GROUPED, ADD), replicas=8, partitions=1)
    assert error.message.startswith("all-reduce.C5: ")
    error = _error(_module(GROUPED, ADD, header=", replica_count=3, num_partitions=1"))
    assert error.message.startswith("all-reduce.C5: ")


# --- modules that no text describes ----------------------------------------------------------------------------------

SMALL = _module("  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT r = f32[] add(p, q)", ADD)


def _changed(changed: str, **changes: object) -> Module:
    """SMALL with one instruction of its entry changed."""
    module = parse_module(SMALL)
    main = module.entry_computation

    def change(i: Instruction) -> Instruction:
        return i.replace(**changes) if i.name == changed else i

    return _with_entry(module, instructions=tuple(change(i) for i in main))


def _with_entry(module: Module, **changes: object) -> Module:
    main = dataclasses.replace(module.entry_computation, **changes)  # type: ignore[arg-type]
    others = tuple(c for c in module.computations if c.name != module.entry)
    return module.replace(computations=(*others, main))


def _recursive() -> Module:
    module = parse_module(
        _module(
            "  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=f", "f {\n  ROOT a = f32[] parameter(0)\n}\n"
        )
    )
    call = module.entry_computation.root_instruction
    return _with_entry(
        module, instructions=(module.entry_computation["p"], call.replace(op=type(call.op)(to_apply="main")))
    )


BUILT = {
    "module.entry": lambda: parse_module(SMALL).replace(entry="nothing"),
    "module.names": lambda: parse_module(SMALL).replace(computations=parse_module(SMALL).computations * 2),
    "module.recursion": _recursive,
    "computation.root": lambda: _with_entry(parse_module(SMALL), root="nothing"),
    "computation.names": lambda: _changed("q", name="p"),
    "parameter.number": lambda: _changed("q", op=type(parse_module(SMALL).entry_computation["q"].op)(number=2)),
    "add.operands": lambda: _changed("r", operands=("p", "nothing")),
    "control.cycle": lambda: _changed("p", control_predecessors=("r",)),
    "schedule.order": lambda: _changed("p", control_predecessors=("q",)).replace(is_scheduled=True),
    "shape.layout": lambda: _changed("q", shape=Shape(F32, (4, 2), layout=Layout((0, 0)))),
    "control.exists": lambda: _changed("r", control_predecessors=("nothing",)),
}


@pytest.mark.parametrize("rule", BUILT)
def test_breaking_the_structure_names_the_rule(rule: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_module(BUILT[rule]())
    assert caught.value.message.startswith(f"{rule}: ")


def test_the_number_of_operands() -> None:
    with pytest.raises(VerificationError, match=r"add\.operands: takes 2 operands, has 1"):
        verify_module(_changed("r", operands=("p",)))


def test_a_called_computation_that_is_missing() -> None:
    module = _recursive()
    call = module.entry_computation.root_instruction
    broken = _with_entry(
        module, instructions=(module.entry_computation["p"], call.replace(op=type(call.op)(to_apply="nothing")))
    )
    with pytest.raises(VerificationError, match=r"call\.computation: there is no computation nothing"):
        verify_module(broken)


# --- what this version cannot execute --------------------------------------------------------------------------------

FFT = "fft_of {\n  a = f32[8] parameter(0)\n  ROOT k = c64[5] fft(a), fft_type=RFFT, fft_length={8}\n}\n"


def test_the_first_instruction_without_an_executor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in (Fft, Cholesky):
        monkeypatch.setattr(op, "lowering", Lowering.NONE)
    text = _module(
        "  p = f32[8] parameter(0)\n  c = c64[5] call(p), to_apply=fft_of\n  q = f32[2,2] parameter(1)\n"
        "  l = f32[2,2] cholesky(q), lower=true\n  ROOT t = (c64[5], f32[2,2]) tuple(c, l)",
        FFT,
    )
    module = parse_module(text, "m.hlo")
    assert [i.opcode for i, _ in obstacles(module)] == ["fft", "cholesky"]
    with pytest.raises(UnsupportedOpError) as caught:
        require_executable(module)
    assert caught.value.message == "this version cannot execute fft (nor cholesky, further on)"
    assert caught.value.location is not None
    assert caught.value.location.line == 4


def test_every_unknown_target_is_named_once() -> None:
    calls = [("a", "p", "one"), ("b", "a", "two"), ("c", "b", "one"), ("d", "c", "two")]
    lines = [f'  {name} = f32[4] custom-call({x}), custom_call_target="{target}"' for name, x, target in calls]
    module = parse_module(_module("\n".join(["  p = f32[4] parameter(0)", *lines, "  ROOT r = f32[4] negate(d)"])))
    with pytest.raises(UnsupportedOpError) as caught:
        require_executable(module)
    assert caught.value.message.startswith('nothing executes the custom-call target "one"; ')
    assert caught.value.message.endswith(' (nor "two", further on)')


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "  ROOT c = f32[4] constant({...})",
            "the text elides the constant's value as {...}",
        ),
        ('  ROOT c = f32[4] custom-call(), custom_call_target="f"', 'nothing executes the custom-call target "f"'),
        (
            "  p = f32[2] parameter(0)\n  q = s32[1] parameter(1)\n"
            "  ROOT n = f32[2] collective-broadcast(p, q), replica_groups={{0}}, has_dynamic_root=true",
            "this version cannot execute collective-broadcast from a root that is known only at run time",
        ),
        (
            "  x = f32[1,4,2] parameter(0)\n  k = f32[3,2,1] parameter(1)\n  ROOT c = f32[1,2,1] convolution(x, k), "
            "window={size=3}, dim_labels=b0f_0io->b0f, sparsity_config={lhs={dimension=1}}",
            "this version cannot execute convolution of sparse operands (sparsity_config)",
        ),
        (
            "  p = f32[?] parameter(0)\n  ROOT n = f32[?] negate(p)",
            "this version cannot execute parameter of the unbounded shape f32[?]",
        ),
    ],
)
def test_what_only_some_instructions_of_an_opcode_lack_is_said(body: str, why: str) -> None:
    ((_, found),) = obstacles(parse_module(_module(body)))[:1]
    assert found.startswith(why)


def test_what_nobody_calls_need_not_be_executable() -> None:
    module = parse_module(_module("  ROOT p = f32[8] parameter(0)", FFT))
    assert obstacles(module) == []
    require_executable(module)


def test_errors_are_the_projects_own() -> None:
    assert issubclass(VerificationError, DistxlaError)


@pytest.mark.parametrize(
    ("entry", "rule"),
    [("{maximal device=7}", "sharding.C"), ("{devices=[2,2]<=[4]}", "sharding.C"), ("{other}", "domain.C1")],
)
def test_both_shardings_of_a_domain_are_checked(entry: str, rule: str) -> None:
    domain = f'domain={{kind="sharding", entry={entry}, exit={{replicated}}}}'
    error = _error(_module(f"  x = f32[4] parameter(0)\n  ROOT d = f32[4] domain(x), {domain}"), partitions=4)
    assert error.message.startswith(rule)
    assert error.location is not None
