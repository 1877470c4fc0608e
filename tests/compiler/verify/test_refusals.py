"""Modules that XLA's parser or verifier refuses and whose text is sound otherwise: the rule, and where it points."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError, VerificationError
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from distxla.text.printer import print_module

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }"
WORK = "work { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }"
OTHER = "other { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }"
SIDE = ', execution_thread="side"'
X = "x = f32[4] parameter(0)"
CONTEXT = "((f32[4]), f32[4], s32[])"
START = f"s = {CONTEXT} async-start(x), calls=work"
CALLED = 's = ((f32[4]), f32[4], s32[]) custom-call-start(x), custom_call_target="f"'


@dataclass(frozen=True)
class Refused:
    """rule: that the message names.  place: the text that it points at.  sound: with it instead of `broken` the module
    is accepted, by us and by XLA's parser."""

    rule: str
    place: str
    broken: str
    sound: str
    before: tuple[str, ...] = ()
    body: tuple[str, ...] = ()

    def text(self, *, repaired: bool = False) -> str:
        """`@` in what stands before the entry, or in its body, is the part that is broken."""
        text = "\n".join(["HloModule m", *self.before, "ENTRY e {", *(f"  {line}" for line in self.body), "}", ""])
        assert text.count("@") == 1
        return text.replace("@", self.sound if repaired else self.broken)


def _sends(second: str) -> tuple[str, ...]:
    return (
        X,
        "y = f32[5] parameter(1)",
        "t = token[] after-all()",
        "s = (f32[4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true, "
        'frontend_attributes={_xla_host_transfer_rendezvous="a"}',
        "sd = token[] send-done(s), channel_id=1, is_host_transfer=true",
        second,
    )


_SECOND = (
    "v = (f32[4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true, "
    'frontend_attributes={_xla_host_transfer_rendezvous="a"}\n'
    "  ROOT d = token[] send-done(v), channel_id=1, is_host_transfer=true"
)
_DOT = ("x = f32[2,2] parameter(0)", "ROOT y = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}@")

REFUSED = {
    # execution threads
    "start of a computation of another thread": Refused(
        "async-start.thread", "s = ((f32", "", ', async_execution_thread="side"', (WORK + SIDE,),
        (X, START + "@", "ROOT d = f32[4] async-done(s)"),
    ),
    "start on a thread of its own": Refused(
        "async-start.thread", "s = ((f32", ', async_execution_thread="side"', "", (WORK,),
        (X, START + "@", "ROOT d = f32[4] async-done(s)"),
    ),
    "done on another thread than its start": Refused(
        "async-done.pair", 'async_execution_thread="main"', '"main"', '"side"', (WORK + SIDE,),
        (X, START + ', async_execution_thread="side"', "ROOT d = f32[4] async-done(s), async_execution_thread=@"),
    ),
    "call of another thread": Refused(
        "call.thread", "c = f32", SIDE, "", (WORK + "@",), (X, "ROOT c = f32[4] call(x), to_apply=work")
    ),
    "fusion of another thread": Refused(
        "fusion.thread", "c = f32", SIDE, "", (WORK + "@",), (X, "ROOT c = f32[4] fusion(x), kind=kLoop, calls=work")
    ),
    "loop of another thread": Refused(
        "while.thread", "c = f32", SIDE, "",
        ("go { p = f32[4] parameter(0)\n ROOT b = pred[] constant(false) }@", WORK),
        (X, "ROOT c = f32[4] while(x), condition=go, body=work"),
    ),
    "branch of another thread": Refused(
        "conditional.thread", "c = f32", SIDE, "", (WORK + "@",),
        (X, "i = s32[] constant(0)", "ROOT c = f32[4] conditional(i, x), branch_computations={work}"),
    ),
    "reducer of another thread": Refused(
        "reduce.thread", "c = f32[] reduce", SIDE, "", (ADD + "@",),
        (X, "z = f32[] constant(0)", "ROOT c = f32[] reduce(x, z), dimensions={0}, to_apply=add"),
    ),
    # what ends something else than it says
    "done of another computation": Refused(
        "async-done.pair", "calls=other", "other", "work", (WORK, OTHER),
        (X, START, "ROOT d = f32[4] async-done(s), calls=@"),
    ),
    "update of another computation": Refused(
        "async-update.pair", "calls=other", "other", "work", (WORK, OTHER),
        (X, START, f"u = {CONTEXT} async-update(s), calls=@", "ROOT d = f32[4] async-done(u)"),
    ),
    "done of another computation behind an update": Refused(
        "async-done.pair", "calls=other", "other", "work", (WORK, OTHER),
        (X, START, f"u = {CONTEXT} async-update(s)", "ROOT d = f32[4] async-done(u), calls=@"),
    ),
    "custom-call-done of something else": Refused(
        "async-done.pair", "custom-call-done", 'custom-call-done(s), custom_call_target="f"', "async-done(s)", (WORK,),
        (X, START, "ROOT d = f32[4] @"),
    ),
    "other done of a custom-call": Refused(
        "async-done.pair", "negate-done", "negate-done(s)", 'custom-call-done(s), custom_call_target="f"', (),
        (X, CALLED, "ROOT d = f32[4] @"),
    ),
    "other done behind an update": Refused(
        "async-done.pair", "negate-done", "negate", "custom-call", (),
        (X, CALLED, f"u = {CONTEXT} async-update(s)", "ROOT d = f32[4] @-done(u)"),
    ),
    # transfers with the host on one channel
    "host transfers of other shapes": Refused(
        "channel.host", "(f32[5]", _SECOND.replace("f32[4]", "f32[5]").replace("(x,", "(y,"), _SECOND, (), _sends("@")
    ),
    "host transfers with other attributes": Refused(
        "channel.host", "frontend_attributes", _SECOND.replace('"a"', '"b"'), _SECOND, (), _sends("@")
    ),
    "host transfers of both directions": Refused(
        "channel.host", "recv",
        "v = (f32[4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n"
        "  ROOT d = (f32[4], token[]) recv-done(v), channel_id=1, is_host_transfer=true",
        _SECOND, (), _sends("@"),
    ),
    "two dones of one transfer": Refused(
        "channel.context", "(s)", "s), channel_id=1", "v), channel_id=1", (),
        (X, "t = token[] after-all()", "s = (f32[4], u32[], token[]) send(x, t), channel_id=1",
         "v = (f32[4], u32[], token[]) send(x, t), channel_id=1", "d = token[] send-done(s), channel_id=1",
         "ROOT e = token[] send-done(@"),
    ),
    # layouts
    "all-reduces with and without constraints": Refused(
        "all-reduce.layout", "constrain_layout=true", "true", "false", (ADD,),
        (X, "r = f32[4] all-reduce(x), to_apply=add",
         "ROOT q = f32[4] all-reduce(r), constrain_layout=@, to_apply=add"),
    ),
    "levels of a dimension that no format has": Refused(
        "", "(X,C)", "X,C", "D,C", (), ("ROOT x = f32[2,3]{1,0:D(@)} parameter(0)",)
    ),
    "no elements of alignment": Refused("", "(-2)", "-2", "2", (), ("ROOT x = f32[2,3]{1,0:L(@)} parameter(0)",)),
    "floats as indices": Refused("", "(f32)", "f32", "u32", (), ("ROOT x = f32[2,3]{1,0:#(@)} parameter(0)",)),
    # words that nothing is called by
    "api_version": Refused(
        "custom-call.C3", "api_version=", "API_VERSION_NEWEST", "API_VERSION_TYPED_FFI", (),
        (X, 'ROOT c = f32[4] custom-call(x), custom_call_target="f", api_version=@'),
    ),
    "schedule": Refused(
        "custom-call.C4", "schedule=", "SCHEDULE_SOON", "SCHEDULE_EARLIEST", (),
        (X, 'ROOT c = f32[4] custom-call(x), custom_call_target="f", schedule=@'),
    ),
    "padding_type": Refused(
        "custom-call.C5", "padding_type=", "PADDING_SOME", "PADDING_SAME", (),
        (X, 'ROOT c = f32[4] custom-call(x), padding_type=@, custom_call_target="f"'),
    ),
    **{
        f"result_accuracy={wrong}": Refused(
            "tanh.accuracy", "result_accuracy=", wrong, right, (), (X, "ROOT y = f32[4] tanh(x), result_accuracy=@")
        )
        for wrong, right in (
            ("{mode=best}", "{mode=highest}"),
            ("{ulps=3}", "{tolerance={ulps=3}}"),
            ("{tolerance={atol=-1}}", "{tolerance={atol=1e-3,rtol=0.5,ulps=2}}"),
            ("{mode=highest,tolerance={}}", "{tolerance={}}"),
        )
    },
    "precision": Refused(
        "dot.C11", "operand_precision=", "{exact,default}", "{highest,DEFAULT}", (),
        (_DOT[0], _DOT[1].replace("@", ", operand_precision=@")),
    ),
    "algorithm": Refused(
        "dot.algorithm", "algorithm=", "dot_f16", "dot_f16_f16_f32", (),
        (_DOT[0], _DOT[1].replace("@", ", algorithm=@")),
    ),
    "convolution_kind": Refused(
        "convolution.kind", "convolution_kind=", "forward", "fprop", (),
        ("x = f32[1,4,2] parameter(0)", "k = f32[3,2,1] parameter(1)",
         "ROOT r = f32[1,2,1] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f, convolution_kind=@"),
    ),
    # annotations of a composite
    **{
        f"composite without {what}": Refused(
            "call.composite", place, wrong,
            ', frontend_attributes={composite.name="a.b",composite.version="2"}', (WORK,),
            (X, "ROOT c = f32[4] call(x), to_apply=work, is_composite=true@"),
        )
        for what, place, wrong in (
            ("attributes", "c = f32", ""),
            ("a name", "frontend_attributes", ', frontend_attributes={composite.name=""}'),
            ("a version", "frontend_", ', frontend_attributes={composite.name="a",composite.version="-1"}'),
            ("values", "frontend_", ', frontend_attributes={composite.name="a",composite.attributes=""}'),
        )
    },
    # scales
    "scaled-dot without scales": Refused(
        "scaled-dot.C15", "(a, b, c, c)", "bf16[] constant(1)", "bf16[1,1] constant({{1}})", (),
        ("a = bf16[4,32] parameter(0)", "b = bf16[8,32] parameter(1)", "c = @",
         "ROOT r = bf16[4,8] scaled-dot(a, b, c, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    ),
    "scaled-dot of two contracting dimensions": Refused(
        "scaled-dot.C16", "(a, b, c, d)", "{1,2}, rhs_contracting_dims={1,2}",
        "{2}, lhs_batch_dims={1}, rhs_batch_dims={1}, rhs_contracting_dims={2}", (),
        ("a = bf16[4,1,32] parameter(0)", "b = bf16[8,1,32] parameter(1)", "c = bf16[4,1,1] parameter(2)",
         "d = bf16[8,1,1] parameter(3)", "r = f32[] constant(0)",
         "ROOT t = bf16[1,4,8] scaled-dot(a, b, c, d), lhs_contracting_dims=@"),
    ),
}  # fmt: skip


ALIASES = {
    "{0}: (3, {})": "module.alias: there is no parameter 3",
    "{}: (0, {})": "module.alias: the result has no array []",
    "{2}: (0, {})": "module.alias: the result has no array [2]",
    "{0}: (1, {})": "module.alias: parameter 1 has no array []",
    "{0}: (1, {1, 0})": "module.alias: parameter 1 has no array [1, 0]",
    "{0}: (1, {1}, must-alias)": "module.alias: the result's f32[4] must alias s32[] of parameter 1",
    "{0}: (0, {}), {1}: (0, {})": "module.alias: parameter 0 [] has two aliases",
    "{0}: (0, {}), {0}: (1, {0})": "module.alias: array [0] of the result has two aliases",
}
DONORS = {
    "(2, {})": "module.donor: there is no parameter 2",
    "(1, {})": "module.donor: parameter 1 has no array []",
    "(0, {})": "module.donor: parameter 0 [] is aliased, too",
}


def _aliasing(header: str) -> str:
    lines = (X, "y = (f32[4], s32[]) parameter(1)", "ROOT t = (f32[4], f32[4]) tuple(x, x)")
    return "\n".join([f"HloModule m, {header}", "ENTRY e {", *lines, "}"])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        *((f"input_output_alias={{ {alias} }}", message) for alias, message in ALIASES.items()),
        *((f"input_output_alias={{ {{0}}: (0, {{}}) }}, buffer_donor={{ {d} }}", m) for d, m in DONORS.items()),
    ],
)
def test_memory_that_no_parameter_has_to_give(header: str, message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_module(parse_module(_aliasing(header)))
    assert caught.value.message == message
    assert caught.value.location is not None
    assert caught.value.location.line == 1


@pytest.mark.parametrize(
    ("parameter", "result", "line"),
    [
        ("f32[1152921504606846976]", "f32[2]", 3),
        ("f32[2]", "s4[562949953421312]", 4),
        ("f32[9,4000000000000]", "f32[2]", 3),
    ],
)
def test_sizes_that_cannot_be_meant(parameter: str, result: str, line: int) -> None:
    text = f"HloModule m\nENTRY e {{\n  p = {parameter} parameter(0)\n  ROOT r = {result} iota(), iota_dimension=0\n}}"
    with pytest.raises(VerificationError, match=r"module\.size: a device takes and gives \d+ bytes") as caught:
        verify_module(parse_module(text))
    assert caught.value.location is not None
    assert caught.value.location.line == line


PLACES = {  # the layouts of a parameter and of the result that takes its memory over
    "in the header": ("entry_computation_layout={(f32[2,3]{1,0:S(5)})->f32[2,3]{1,0}}", "", ""),
    "of another order": ("", "{1,0}", "{0,1}"),
    "in another memory": ("", "{1,0}", "{1,0:S(5)}"),
    "in tiles": ("", "{1,0:T(2,2)}", "{1,0}"),
}


def _placed(header: str, parameter: str, result: str, kind: str) -> Module:
    header = ", ".join(filter(None, ("HloModule m", f"input_output_alias={{ {{}}: (0, {{}}, {kind}) }}", header)))
    lines = f"x = f32[2,3]{parameter} parameter(0)\n ROOT r = f32[2,3]{result} copy(x)"
    return parse_module(f"{header}\nENTRY e {{\n {lines}\n}}")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_memory_that_a_result_cannot_take_over(place: tuple[str, str, str]) -> None:
    with pytest.raises(VerificationError, match=r"module.alias: the result's f32\[2,3\].* must alias f32\[2,3\]"):
        verify_module(_placed(*place, "must-alias"))
    verify_module(_placed(*place, "may-alias"))
    header, parameter, _ = place
    verify_module(_placed(header and header.replace("S(5)", "S(0)"), parameter, parameter, "must-alias"))


def test_memory_that_parameters_have_to_give() -> None:
    header = "input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {0}, may-alias) }, buffer_donor={ (1, {1}) }"
    verify_module(parse_module(_aliasing(header)))


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_it_is_refused_by_its_rule_at_its_place(refused: Refused) -> None:
    with pytest.raises(DistxlaError) as caught:
        verify_module(parse_module(refused.text(), "m.hlo"))
    error = caught.value
    assert error.message.startswith(f"{refused.rule}: " if refused.rule else "expected "), error.message
    assert error.exit_status == 2
    assert error.location is not None
    assert error.location.text[error.location.column - 1 :].startswith(refused.place), str(error)


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_without_the_fault_it_is_accepted(refused: Refused) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = parse_module(refused.text(repaired=True), "m.hlo")
    verify_module(module)
    hlo.hlo_module_from_text(print_module(module))
