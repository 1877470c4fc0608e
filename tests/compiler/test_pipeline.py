"""The pipeline: its text, its order, the verifier between its steps, and what is printed after them."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.compiler.compile import compile_module
from distxla.compiler.pipeline import STEPS, Pipeline, parse_pipeline
from distxla.compiler.stages import emit, emit_after
from distxla.errors import ArgumentError, VerificationError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.program.options import VERIFY, CompileOptions
from distxla.rewrites.reduction_order import ReductionOrder
from distxla.rewrites.step import Pass, Step
from distxla.text.parser import parse_module

STATIC = """HloModule m
called { a = f32[8] parameter(0)
  ROOT b = f32[8] tanh(a) }
ENTRY e { x = f32[8] parameter(0)
  y = f32[8] call(x), to_apply=called
  ROOT z = f32[8] add(y, y) }
"""
DYNAMIC = """HloModule m
ENTRY e { x = f32[<=8] parameter(0)
  y = f32[<=8] tanh(x)
  ROOT z = f32[<=8] add(y, y) }
"""

ORDERS = "one of as-written, rank, tree, ring"


def classes() -> list[type[Step]]:
    return sorted({type(step) for step in STEPS}, key=lambda kind: kind.name)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(classes()))
    words = kind().words
    values = {
        name: st.sampled_from(words[name]) if name in words else st.integers(0, 1 << 40) for name in kind().parameters
    }
    given = draw(st.fixed_dictionaries({}, optional=values))
    return kind(**{name.replace("-", "_"): value for name, value in given.items()})


@given(st.lists(steps(), min_size=1, max_size=6))
def test_the_text_of_a_pipeline_says_all_of_it(drawn: list[Step]) -> None:
    pipeline = Pipeline(tuple(drawn))
    assert parse_pipeline(str(pipeline)).steps == pipeline.steps
    assert parse_pipeline(str(pipeline).replace(",", " ,\n ").replace("=", " = ")).steps == pipeline.steps


def test_the_standard_text_has_no_parameters() -> None:
    assert str(Pipeline()).endswith("overlap,fuse,fuse-rows,dead-code,zero-copy-transfers,schedule,plan")
    assert parse_pipeline(str(Pipeline())).steps == STEPS
    assert Pipeline.of(CompileOptions()).steps == STEPS


@pytest.mark.parametrize(("order", "text"), [("as-written", ""), ("ring", "{order=ring}"), ("rank", "{order=rank}")])
def test_a_parameter_may_be_a_word(order: str, text: str) -> None:
    parsed = parse_pipeline(f"host-calls,reduction-order{{ order = {order} }},plan").steps
    assert parsed[1] == ReductionOrder(order)
    assert str(Pipeline(parsed)) == f"host-calls,reduction-order{text},plan"


def test_each_parameter_is_a_whole_number_or_one_of_its_words() -> None:
    for kind in classes():
        for name, value in kind().parameters.items():
            words = kind().words.get(name)
            assert (value == words[0] and len(words) > 1) if words else (type(value) is int), (kind.name, name)


def test_an_option_that_changes_the_module_is_a_parameter_of_a_step() -> None:
    assert "inline-async,rounds-in-order{apart=1},forget-buffers" in str(Pipeline.of(CompileOptions(apart=True)))


def test_each_step_has_a_name_and_a_sentence_of_its_own() -> None:
    assert len({kind.name for kind in classes()}) == len(classes())
    for kind in classes():
        assert kind.name == kind.name.lower().replace(" ", "-").replace("_", "-")
        assert kind().summary[0].isupper()


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("", 1, "expected a step", "--list-passes"),
        ("fuse,,schedule", 6, "expected a step", "--list-passes"),
        ("fus", 1, "no step is called fus", "did you mean fuse?"),
        ("fuse schedule", 6, "expected , or the end, found schedule", "--list-passes"),
        ("fuse{max-member=1}", 6, "expected a parameter or }: fuse takes max-members", "did you mean max-members?"),
        ("dead-code{x=1}", 11, "dead-code takes no parameters", "--list-passes"),
        ("overlap{max-bytes}", 18, "expected = and the value of max-bytes", "--list-passes"),
        ("overlap{max-bytes=-1}", 19, "max-bytes: expected a whole number, found -1", "--list-passes"),
        ("overlap{max-bytes=", 19, "max-bytes: expected a whole number, found the end", "--list-passes"),
        ("overlap{max-bytes=1 max-bytes=2}", 21, "max-bytes is given twice", "did you mean max-bytes?"),
        ("overlap{", 9, "expected a parameter or }", "--list-passes"),
        ("reduction-order{order=rnig}", 23, f"order: expected {ORDERS}, found rnig", "did you mean ring?"),
        ("reduction-order{order=3}", 23, f"order: expected {ORDERS}, found 3", "--list-passes"),
        ("reduction-order{order=}", 23, f"order: expected {ORDERS}, found }}", "--list-passes"),
        ("reduction-order{order=", 23, f"order: expected {ORDERS}, found the end", "--list-passes"),
        ("fuse{max-members=ring}", 18, "max-members: expected a whole number, found ring", "--list-passes"),
        ("reduction-order{ordr=ring}", 17, "reduction-order takes order", "did you mean order?"),
    ],
)
def test_errors_point_into_the_text(text: str, column: int, message: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_pipeline(text, "--passes")
    assert message in caught.value.message
    assert str(caught.value.location) == f"--passes:1:{column}"
    assert hint in caught.value.__notes__[0]


@pytest.mark.parametrize("text", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_a_compilation_runs_each_step_once(text: str) -> None:
    told: list[str] = []
    compile_module(parse_module(text), Counts(1, 1), progress=told.append)
    assert [name for name in told if name.startswith("pass ")] == [f"pass {step.name}" for step in STEPS]


def test_the_result_of_a_dynamic_program_has_its_dimensions_marked() -> None:
    assert str(Pipeline().run(parse_module(DYNAMIC)).result) == "f32[<=8]"
    assert str(compile_module(parse_module(DYNAMIC), Counts(1, 1)).result) == "f32[<=8]"


@dataclass(frozen=True)
class Spoil(Pass):
    """Leave a root that there is not."""

    name: ClassVar[str] = "spoil"

    def run(self, module: Module) -> Module:
        entry = module.entry_computation
        broken = Computation(entry.name, entry.instructions[:-1], entry.root)
        return module.replace(computations=(*module.computations[:-1], broken))


def test_the_verifier_runs_after_each_step_that_changed_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERIFY, raising=False)
    Pipeline((Spoil(),)).run(parse_module(STATIC))
    monkeypatch.setenv(VERIFY, "1")
    with pytest.raises(VerificationError, match=r"computation\.root") as caught:
        Pipeline((Spoil(),)).run(parse_module(STATIC))
    assert caught.value.__notes__ == ["in pass spoil"]
    assert parse_pipeline("fuse").verify


THROUGH_A_TUPLE = """HloModule m
ENTRY e { x = f32[2] parameter(0)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, PAIRS
  p = ((f32[2], u32[], token[]), f32[2]) tuple(s, x)
  g = (f32[2], u32[], token[]) get-tuple-element(p), index=0
  d = token[] send-done(g), channel_id=1
  r = (f32[2], u32[], token[]) recv(t), channel_id=1, PAIRS
  v = (f32[2], token[]) recv-done(r), channel_id=1
  ROOT y = f32[2] get-tuple-element(v), index=0 }
""".replace("PAIRS", "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1}}}")


def test_what_a_pass_leaves_unread_breaks_no_rule() -> None:
    Pipeline(verify=True).run(parse_module(THROUGH_A_TUPLE))


@pytest.mark.parametrize("stage", ["hlo", "schedule", "buffers", "llvm", "llvm-unoptimised", "asm", "object"])
def test_the_standard_text_gives_what_the_compiler_makes(stage: str) -> None:
    module = parse_module(STATIC)
    wanted = emit(module, stage, Counts(1, 1))
    assert emit(module, stage, Counts(1, 1), passes=str(Pipeline())) == wanted


def test_a_stage_is_printed_as_the_given_steps_leave_it() -> None:
    module = parse_module(STATIC)
    assert "call(" in str(emit(module, "hlo", Counts(1, 1), passes="simplify"))
    inlined = str(emit(module, "hlo", Counts(1, 1), passes="inline-calls"))
    assert "call(" not in inlined
    assert "fusion(" not in inlined
    assert "kernel z (add)" in str(emit(module, "buffers", Counts(1, 1), passes="inline-calls,schedule,plan"))


@pytest.mark.parametrize(
    ("text", "passes", "stage", "message"),
    [
        (STATIC, "inline-calls", "schedule", "the pipeline has no step schedule"),
        (STATIC, "inline-calls,schedule", "buffers", "the pipeline has no step plan"),
        (STATIC, "inline-calls,plan", "buffers", "the step schedule must come before plan"),
        (STATIC, "schedule,plan", "llvm", "the step inline-calls must come before plan"),
        (DYNAMIC, "schedule,plan", "llvm", "the step pad-dynamic-dimensions must come before plan"),
    ],
)
def test_a_stage_that_the_steps_do_not_lead_to(text: str, passes: str, stage: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        emit(parse_module(text), stage, Counts(1, 1), passes=passes)


def test_what_is_printed_after_a_step_is_the_module_then() -> None:
    module = parse_module(STATIC)
    count = Counter(step.name for step in STEPS)
    for name, times in count.items():
        text = emit_after(module, name, Counts(1, 1))
        assert text.count(f"// after {name}, step ") == times
    printed = emit_after(module, "inline-calls", Counts(1, 1))
    assert parse_module(printed).entry_computation.by_name.keys() == {"x", "b", "z"}
    assert "is_scheduled=true" in emit_after(module, "schedule", Counts(1, 1))
    assert "kernel " in emit_after(module, "plan", Counts(1, 1))


def test_a_step_that_there_is_not() -> None:
    with pytest.raises(ArgumentError, match="no step is called fuze") as caught:
        emit_after(parse_module(STATIC), "fuze", Counts(1, 1))
    assert caught.value.__notes__ == ["hint: did you mean fuse?"]
