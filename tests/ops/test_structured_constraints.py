"""One broken instruction for every numbered constraint of the structured, control, channel and feed ops."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from distxla.ir.op import RuleViolation
from distxla.ir.shape import ProgramShape
from distxla.ir.window import ConvolutionDimensions, Window, WindowDimension
from distxla.ops.support.registry import op_class
from distxla.text.shapes import parse_shape

# Signatures of the computations that the broken instructions call.
CALLED = {
    "add": ("f32[] f32[]", "f32[]"),
    "ge": ("f32[] f32[]", "pred[]"),
    "add_s32": ("s32[] s32[]", "s32[]"),
    "one": ("f32[]", "f32[]"),
    "vector": ("f32[2] f32[2]", "f32[2]"),
    "to_pred": ("f32[2]", "pred[]"),
    "to_vector": ("f32[2]", "f32[2]"),
    "to_scalar": ("f32[2]", "f32[]"),
}


def _called(name: str) -> ProgramShape:
    parameters, result = CALLED[name]
    return ProgramShape(tuple(parse_shape(p) for p in parameters.split()), parse_shape(result))


@dataclass(frozen=True)
class Broken:
    """`good`: an instruction (opcode, attributes, operand shapes, result) and what to change about it."""

    rule: str
    opcode: str
    operands: str
    result: str
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.opcode}.{self.rule}"

    def verify(self) -> None:
        op = op_class(self.opcode)(**self.attributes)
        op.verify(parse_shape(self.result), tuple(parse_shape(o) for o in self.operands.split()), _called)

    def but(self, rule: str, *, operands: str | None = None, result: str | None = None, **attributes: Any) -> Broken:
        return replace(
            self,
            rule=rule,
            operands=self.operands if operands is None else operands,
            result=self.result if result is None else result,
            attributes={**self.attributes, **attributes},
        )


def _window(*dimensions: WindowDimension) -> Window:
    return Window(dimensions)


REDUCE = Broken("", "reduce", "f32[2,3] f32[]", "f32[2]", {"dimensions": (1,), "to_apply": "add"})
MAP = Broken("", "map", "f32[2] f32[2]", "f32[2]", {"dimensions": (0,), "to_apply": "add"})
WINDOW = Broken(
    "", "reduce-window", "f32[4] f32[]", "f32[3]", {"window": _window(WindowDimension(2)), "to_apply": "add"}
)
SELECT = Broken(
    "",
    "select-and-scatter",
    "f32[4] f32[3] f32[]",
    "f32[4]",
    {"window": _window(WindowDimension(2)), "select": "ge", "scatter": "add"},
)
SCATTER = Broken(
    "",
    "scatter",
    "f32[4,5] s32[3,1] f32[3,2]",
    "f32[4,5]",
    {
        "update_window_dims": (1,),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
        "to_apply": "add",
    },
)
BATCHED_SCATTER = Broken(
    "",
    "scatter",
    "f32[4,5] s32[4,1] f32[4,2]",
    "f32[4,5]",
    {
        "update_window_dims": (1,),
        "inserted_window_dims": (),
        "input_batching_dims": (0,),
        "scatter_indices_batching_dims": (0,),
        "scatter_dims_to_operand_dims": (1,),
        "index_vector_dim": 1,
        "to_apply": "add",
    },
)
DOT = Broken(
    "",
    "dot",
    "f32[2,3,4] f32[2,4,5]",
    "f32[2,3,5]",
    {
        "lhs_batch_dims": (0,),
        "lhs_contracting_dims": (2,),
        "rhs_batch_dims": (0,),
        "rhs_contracting_dims": (1,),
    },
)
RAGGED = Broken(
    "",
    "ragged-dot",
    "f32[6,4] f32[2,4,5] s32[2]",
    "f32[6,5]",
    {
        "lhs_contracting_dims": (1,),
        "rhs_contracting_dims": (1,),
        "lhs_ragged_dims": (0,),
        "rhs_group_dims": (0,),
    },
)
SCALED = Broken(
    "",
    "scaled-dot",
    "f32[4,64] f32[64,8] f32[4,2] f32[]",
    "f32[4,8]",
    {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)},
)
LABELS = ConvolutionDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))  # b0f_0io->b0f
CONVOLUTION = Broken(
    "",
    "convolution",
    "f32[4,6,4] f32[3,4,8]",
    "f32[4,4,8]",
    {"window": _window(WindowDimension(3)), "dim_labels": LABELS},
)
SORT = Broken("", "sort", "f32[2,3]", "f32[2,3]", {"dimensions": (1,), "to_apply": "ge"})
TOPK = Broken("", "topk", "f32[2,3]", "(f32[2,2], s32[2,2])", {"k": 2})
SCAN = Broken(
    "",
    "scan",
    "f32[2,3] f32[2]",
    "f32[2]",
    {"dimensions": (1,), "num_carries": 1, "to_apply": "vector"},
)
RNG = Broken("", "rng", "f32[] f32[]", "f32[4]", {"distribution": "rng_normal"})
BITS = Broken("", "rng-bit-generator", "u64[2]", "(u64[2], u32[4])", {"algorithm": "rng_default"})
STATE = Broken("", "rng-get-and-update-state", "", "u64[1]", {"delta": 1})
FFT = Broken("", "fft", "f32[2,8]", "c64[2,5]", {"fft_type": "RFFT", "fft_length": (8,)})
CHOLESKY = Broken("", "cholesky", "f32[2,3,3]", "f32[2,3,3]")
SOLVE = Broken(
    "",
    "triangular-solve",
    "f32[3,3] f32[3,2]",
    "f32[3,2]",
    {"left_side": True, "transpose_a": "NO_TRANSPOSE"},
)
TRAINING = Broken(
    "",
    "batch-norm-training",
    "f32[2,3] f32[3] f32[3]",
    "(f32[2,3], f32[3], f32[3])",
    {"epsilon": 0.1, "feature_index": 1},
)
INFERENCE = Broken(
    "", "batch-norm-inference", "f32[2,3] f32[3] f32[3] f32[3] f32[3]", "f32[2,3]", {"epsilon": 0.1, "feature_index": 1}
)
GRAD = Broken(
    "",
    "batch-norm-grad",
    "f32[2,3] f32[3] f32[3] f32[3] f32[2,3]",
    "(f32[2,3], f32[3], f32[3])",
    {"epsilon": 0.1, "feature_index": 1},
)
WHILE = Broken("", "while", "f32[2]", "f32[2]", {"condition": "to_pred", "body": "to_vector"})
CONDITIONAL = Broken(
    "",
    "conditional",
    "pred[] f32[2] f32[2]",
    "f32[2]",
    {"true_computation": "to_vector", "false_computation": "to_vector"},
)
CASE = Broken("", "conditional", "s32[] f32[2]", "f32[2]", {"branch_computations": ("to_vector",)})
CALL = Broken("", "call", "f32[2]", "f32[2]", {"to_apply": "to_vector"})
FUSION = Broken("", "fusion", "f32[2]", "f32[2]", {"kind": "kLoop", "calls": "to_vector"})
START = Broken("", "async-start", "f32[2]", "((f32[2]),f32[2],u32[])", {"calls": "to_vector"})
UPDATE = Broken("", "async-update", "((f32[2]),f32[2],u32[])", "((f32[2]),f32[2],u32[])")
DONE = Broken("", "async-done", "((f32[2]),f32[2],u32[])", "f32[2]")
CUSTOM = Broken("", "custom-call", "f32[2]", "f32[2]", {"custom_call_target": "f"})
INFEED = Broken("", "infeed", "token[]", "(f32[2], token[])")
OUTFEED = Broken("", "outfeed", "f32[2] token[]", "token[]", {"outfeed_shape": "f32[2]{0}"})
AFTER_ALL = Broken("", "after-all", "token[] token[]", "token[]")
DEPENDENCY = Broken("", "add-dependency", "f32[2] token[]", "f32[2]")
SEND = Broken("", "send", "f32[2] token[]", "(f32[2], u32[], token[])", {"channel_id": 1})
SEND_DONE = Broken("", "send-done", "(f32[2],u32[],token[])", "token[]", {"channel_id": 1})
RECV = Broken("", "recv", "token[]", "(f32[2], u32[], token[])", {"channel_id": 1})
RECV_DONE = Broken("", "recv-done", "(f32[2],u32[],token[])", "(f32[2], token[])", {"channel_id": 1})
GET_SIZE = Broken("", "get-dimension-size", "f32[<=4]", "s32[]", {"dimensions": (0,)})
SET_SIZE = Broken("", "set-dimension-size", "f32[4] s32[]", "f32[<=4]", {"dimensions": (0,)})
BARRIER = Broken("", "opt-barrier", "(f32[2],s32[])", "(f32[2], s32[])")
DOMAIN = Broken("", "domain", "f32[2]", "f32[2]", {"domain": "{}"})
IDENTITIES = [Broken("", opcode, "", "u32[]") for opcode in ("replica-id", "partition-id")]

GOOD = [value for value in list(globals().values()) if isinstance(value, Broken)] + IDENTITIES
GOOD += [
    BITS.but("", result="u32[4]"),
    SET_SIZE.but("", result="f32[4]"),
    AFTER_ALL.but("", operands="token[] f32[]"),
    OUTFEED.but("", outfeed_shape=None),
    FUSION.but("", output_to_operand_aliasing=(((), 0, ()),)),
    CUSTOM.but("", operand_layout_constraints=(parse_shape("f32[2]{0}"),)),
    CUSTOM.but("", custom_call_target="LayoutConstraint", operand_layout_constraints=(parse_shape("f32[8]{0}"),)),
    DOT.but("", result="f64[2,3,5]"),
]

BROKEN = [
    REDUCE.but("C1", operands="f32[2,3] f32[3,2] f32[] f32[]"),
    REDUCE.but("C2", operands="f32[2,3] s32[]"),
    REDUCE.but("C3", operands="f32[2,3] f32[] f32[]"),
    REDUCE.but("C4", dimensions=(2,)),
    REDUCE.but("C5", dimensions=(1, 1)),
    REDUCE.but("C6", to_apply="ge"),
    REDUCE.but("C6", to_apply="one"),
    REDUCE.but("shape", result="f32[3]"),
    MAP.but("C1", operands="f32[2] f32[3]"),
    MAP.but("C3", dimensions=(1,)),
    MAP.but("C4", to_apply="one"),
    MAP.but("C4", to_apply="vector"),
    MAP.but("shape", result="f32[3]"),
    WINDOW.but("C1", operands="f32[4] f32[] f32[]"),
    WINDOW.but("C2", operands="f32[4] f32[5] f32[] f32[]"),
    WINDOW.but("C3", operands="f32[4] s32[]"),
    WINDOW.but("C4", window=_window()),
    WINDOW.but("C5", window=_window(WindowDimension(0))),
    WINDOW.but("C7", window=_window(WindowDimension(2, stride=0))),
    WINDOW.but("C9", window=_window(WindowDimension(2, base_dilation=0))),
    WINDOW.but("C11", window=_window(WindowDimension(2, window_dilation=0))),
    WINDOW.but("C13", to_apply="ge"),
    WINDOW.but("shape", result="f32[4]"),
    SELECT.but("C1", operands="f32[4] s32[3] f32[]"),
    SELECT.but("C2", operands="f32[4] f32[4] f32[]"),
    SELECT.but("C3", operands="f32[4] f32[3] f32[1]"),
    SELECT.but("C4", window=_window()),
    SELECT.but("C5", window=_window(WindowDimension(0))),
    SELECT.but("C7", window=_window(WindowDimension(2, stride=0))),
    SELECT.but("C9", select="add"),
    SELECT.but("C10", scatter="ge"),
    SELECT.but("shape", result="f32[3]"),
    SCATTER.but("C1", operands="f32[4,5] f32[4,6] s32[3,1] f32[3,2] f32[3,2]"),
    SCATTER.but("C2", inserted_window_dims=()),
    SCATTER.but("C3", operands="f32[4,5] f32[4,5] s32[3,1] f32[3,2] f32[3,3]"),
    SCATTER.but("C4", operands="f32[4,5] s32[3,1] f32[2,2]"),
    SCATTER.but("C4", operands="f32[4,5] s32[3,1] f32[3,6]"),
    SCATTER.but("C5", operands="f32[4,5] s32[3,1] f32[3,2] f32[3,2]"),
    SCATTER.but("C6", operands="f32[4,5] s32[3,1] s32[3,2]"),
    SCATTER.but("C7", update_window_dims=(1, 0), inserted_window_dims=()),
    SCATTER.but("C8", update_window_dims=(2,)),
    SCATTER.but("C9", inserted_window_dims=(0, 0), update_window_dims=()),
    SCATTER.but("C10", inserted_window_dims=(1, 0), update_window_dims=()),
    SCATTER.but("C11", inserted_window_dims=(2,)),
    BATCHED_SCATTER.but("C12", input_batching_dims=(1, 0), update_window_dims=()),
    BATCHED_SCATTER.but("C13", input_batching_dims=(2,)),
    BATCHED_SCATTER.but("C14", scatter_indices_batching_dims=(0, 0)),
    BATCHED_SCATTER.but("C15", scatter_indices_batching_dims=(2,)),
    BATCHED_SCATTER.but("C16", scatter_indices_batching_dims=(1,)),
    BATCHED_SCATTER.but("C17", scatter_indices_batching_dims=()),
    BATCHED_SCATTER.but("C18", operands="f32[3,5] s32[4,1] f32[4,2]"),
    SCATTER.but("C19", scatter_dims_to_operand_dims=(0, 1)),
    BATCHED_SCATTER.but("C20", scatter_dims_to_operand_dims=(0,)),
    SCATTER.but("C21", scatter_dims_to_operand_dims=(2,)),
    SCATTER.but("C22", index_vector_dim=3),
    SCATTER.but("C23", to_apply="ge"),
    SCATTER.but("shape", result="f32[5,4]"),
    DOT.but("C1", rhs_batch_dims=()),
    DOT.but("C2", rhs_contracting_dims=()),
    DOT.but("C3", lhs_contracting_dims=(0,)),
    DOT.but("C4", rhs_contracting_dims=(0,)),
    DOT.but("C5", lhs_batch_dims=(3,)),
    DOT.but("C6", lhs_contracting_dims=(3,)),
    DOT.but("C7", rhs_batch_dims=(3,)),
    DOT.but("C8", rhs_contracting_dims=(3,)),
    DOT.but("C9", operands="f32[2,3,4] f32[1,4,5]"),
    DOT.but("C10", operands="f32[2,3,4] f32[2,3,5]"),
    DOT.but("C11", operand_precision=("highest",)),
    DOT.but("C12", result="f32[2,5,3]"),
    DOT.but("C13", result="c64[2,3,5]"),
    RAGGED.but("C11", operand_precision=("highest",)),
    RAGGED.but("C12", result="f32[5,6]"),
    RAGGED.but("C14", lhs_ragged_dims=()),
    RAGGED.but("C15", rhs_group_dims=()),
    RAGGED.but("C16", operands="f32[6,4] f32[2,4,5] s32[3]"),
    SCALED.but("C11", operand_precision=("highest",)),
    SCALED.but("C12", result="f32[8,4]"),
    SCALED.but("C14", operands="f32[4,64] f32[64,8] f32[4,3] f32[]"),
    SCALED.but("C15", operands="f32[4,64] f32[64,8] f32[] f32[]"),
    SCALED.but(
        "C16",
        operands="f32[4,64] f32[4,64] f32[4,2] f32[]",
        result="f32[]",
        lhs_contracting_dims=(0, 1),
        rhs_contracting_dims=(0, 1),
    ),
    CONVOLUTION.but("C1", operands="f32[4,6] f32[3,4,8]"),
    CONVOLUTION.but("C2", window=_window()),
    CONVOLUTION.but("C3", window=_window(WindowDimension(3, stride=0))),
    CONVOLUTION.but("C6", window=_window(WindowDimension(3, base_dilation=0))),
    CONVOLUTION.but("C8", window=_window(WindowDimension(3, window_dilation=0))),
    CONVOLUTION.but("C10", batch_group_count=3),
    CONVOLUTION.but("C11", feature_group_count=3),
    CONVOLUTION.but("C13", dim_labels=replace(LABELS, input_batch=1)),
    CONVOLUTION.but("C14", feature_group_count=2),
    CONVOLUTION.but("C15", batch_group_count=4, operands="f32[4,6,4] f32[3,4,6]"),
    CONVOLUTION.but("C16", feature_group_count=4, operands="f32[4,6,4] f32[3,1,6]"),
    CONVOLUTION.but("C18", dim_labels=replace(LABELS, kernel_input_feature=0)),
    CONVOLUTION.but("C20", dim_labels=replace(LABELS, output_batch=1)),
    CONVOLUTION.but("C21", feature_group_count=0),
    CONVOLUTION.but("C22", batch_group_count=0),
    CONVOLUTION.but("C23", feature_group_count=2, batch_group_count=2),
    CONVOLUTION.but("C24", operand_precision=("highest",)),
    CONVOLUTION.but("C25", result="f32[4,5,8]"),
    CONVOLUTION.but("C27", result="c64[4,4,8]"),
    CONVOLUTION.but("size", window=_window(WindowDimension(2))),
    SORT.but("C3", operands="f32[2,3] f32[3,2]"),
    SORT.but("C4", dimensions=(2,)),
    SORT.but("C5", to_apply="add"),
    TOPK.but("C1", operands="f32[]"),
    TOPK.but("C2", k=4),
    SCAN.but("C1", dimensions=(2,)),
    SCAN.but("C2", num_carries=3),
    SCAN.but("C3", to_apply="add"),
    SCAN.but("C4", result="(f32[2,3], f32[2])"),
    SCAN.but("C5", result="f32[3]"),
    SCAN.but("C6", operands="f32[2,3]", result="f32[2,4]", num_carries=0, to_apply="to_vector"),
    RNG.but("C1", operands="f32[] s32[]"),
    RNG.but("C2", operands="s32[] s32[]", result="s32[4]"),
    RNG.but("kind", distribution="rng_poisson"),
    BITS.but("C1", result="(u64[3], u32[4])"),
    BITS.but("C2", result="(u64[2], u32[4], u32[4])"),
    BITS.but("kind", algorithm="rng_mersenne"),
    STATE.but("C1", result="(u64[1])"),
    STATE.but("C2", delta=-1),
    FFT.but("C1", fft_length=(2, 8, 1)),
    FFT.but("C2", operands="c64[2,8]"),
    FFT.but("C3", fft_length=()),
    FFT.but("C4", fft_length=(7,)),
    FFT.but("C5", fft_length=(-8,)),
    FFT.but("C5", operands="c64[2,8]", result="c64[2,8]", fft_type="FFT", fft_length=(2, -1)),
    FFT.but("kind", fft_type="DCT"),
    CHOLESKY.but("C2", operands="f32[3]"),
    CHOLESKY.but("C3", operands="f32[2,3]"),
    CHOLESKY.but("C4", operands="s32[3,3]"),
    SOLVE.but("C1", operands="f32[3,3] f64[3,2]"),
    SOLVE.but("C2", operands="f32[3,3] f32[1,3,2]"),
    SOLVE.but("C3", operands="f32[3,3] f32[2,3]"),
    SOLVE.but("C5", operands="s32[3,3] s32[3,2]"),
    SOLVE.but("kind", transpose_a="MAYBE"),
    *(
        case.but(rule, operands=case.operands.replace(*change), **attributes)
        for case in (TRAINING, INFERENCE, GRAD)
        for rule, change, attributes in (
            ("C1", ("", ""), {"feature_index": 2}),
            ("C2", (" f32[3]", " f64[3]"), {}),
            ("C3", (" f32[3]", " f32[2]"), {}),
        )
    ),
    GRAD.but("C4", operands="f32[2,3] f32[3] f32[3] f32[3] f32[3,2]"),
    WHILE.but("C1", condition="to_vector"),
    WHILE.but("C2", body="to_scalar"),
    CONDITIONAL.but("C1", false_computation=None),
    CONDITIONAL.but("C1", branch_computations=("to_vector",)),
    CASE.but("C1", operands="s32[] f32[2] f32[2]"),
    CONDITIONAL.but("C2", operands="pred[] f32[2] f32[3]"),
    CONDITIONAL.but("C3", false_computation="to_scalar"),
    CONDITIONAL.but("C5", operands="s32[] f32[2] f32[2]"),
    CASE.but("C5", operands="pred[] f32[2]"),
    CASE.but("C5", operands="f32[] f32[2]"),
    CASE.but("C5", operands="pred[] f32[2]"),
    CALL.but("C1", operands="f32[3]"),
    FUSION.but("C1", operands="f32[3]"),
    FUSION.but("kind", kind="kOther"),
    FUSION.but("aliasing", output_to_operand_aliasing=(((), 1, ()),)),
    FUSION.but("aliasing", output_to_operand_aliasing=(((0,), 0, ()),)),
    FUSION.but("aliasing", output_to_operand_aliasing=(((), 0, ()), ((), 0, ()))),
    START.but("C1", operands="f32[3]"),
    START.but("C2", result="(f32[2],f32[2],u32[])"),
    START.but("C2", result="((f32[2]),f32[3],u32[])"),
    UPDATE.but("shape", result="((f32[2]),f32[3],u32[])"),
    DONE.but("C1", operands="f32[2]"),
    DONE.but("shape", result="f32[3]"),
    CUSTOM.but("C1", custom_call_target=""),
    CUSTOM.but("C3", api_version="API_VERSION_NEWEST"),
    CUSTOM.but("C4", schedule="LATEST"),
    CUSTOM.but("C5", padding_type="same"),
    CUSTOM.but("C2", operand_layout_constraints=()),
    CUSTOM.but("C2", operand_layout_constraints=(parse_shape("f32[8]{0}"),)),
    CUSTOM.but("C2", custom_call_target="LayoutConstraint", operand_layout_constraints=(parse_shape("f32[2,1]"),)),
    CUSTOM.but("aliasing", output_to_operand_aliasing=(((), 1, ()),)),
    INFEED.but("C1", operands="f32[]"),
    INFEED.but("C3", result="f32[2]"),
    OUTFEED.but("C1", operands="f32[2] f32[2]"),
    OUTFEED.but("C2", outfeed_shape="f32[3]{0}"),
    DEPENDENCY.but("C1", operands="f32[2] f32[2]"),
    SEND.but("C1", operands="f32[2] f32[2]"),
    SEND.but("shape", result="(f32[2], u32[])"),
    SEND_DONE.but("C1", operands="f32[2]"),
    RECV.but("C1", operands="f32[]"),
    RECV.but("C2", result="(f32[2], token[])"),
    RECV_DONE.but("C1", operands="(f32[2],token[])"),
    RECV_DONE.but("shape", result="(f32[3], token[])"),
    GET_SIZE.but("C1", dimensions=(1,)),
    SET_SIZE.but("C1", dimensions=(0, 0)),
    SET_SIZE.but("C2", operands="f32[4] f32[]"),
    SET_SIZE.but("shape", result="f32[<=5]"),
    BARRIER.but("shape", result="(f32[3], s32[])"),
    DOMAIN.but("shape", result="f32[3]"),
    *(case.but("shape", result="s32[]") for case in IDENTITIES),
]


OPCODES = sorted({case.opcode for case in GOOD})


def test_each_broken_instruction_has_an_unbroken_one() -> None:
    assert {case.opcode for case in BROKEN} <= set(OPCODES)


@pytest.mark.parametrize("opcode", OPCODES)
def test_breaking_a_constraint_names_it(opcode: str) -> None:
    """And the unbroken instruction is accepted."""
    for good in GOOD:
        if good.opcode == opcode:
            good.verify()
    for case in BROKEN:
        if case.opcode == opcode:
            with pytest.raises(RuleViolation) as caught:
                case.verify()
            assert caught.value.message.startswith(f"{case.opcode}.{case.rule}: "), case


@pytest.mark.parametrize("opcode", OPCODES)
def test_every_documented_rule_has_a_broken_instruction(opcode: str) -> None:
    """`Errors:` of the docstring lists the ids, ranges as `C5 to C8`."""
    documented = re.search(r"Errors:(.*?)(?:Source:|$)", op_class(opcode).__doc__ or "", re.DOTALL)
    text = documented.group(1).replace("C1 to C10 as for dot;", "") if documented else ""
    named = set(re.findall(r"\bC\d+\b", text))
    for low, high in re.findall(r"\bC(\d+) to C(\d+)\b", text):
        named |= {f"C{n}" for n in range(int(low), int(high) + 1)}
    assert named <= {case.rule for case in BROKEN if case.opcode == opcode}
