"""cuBLAS's matrix products: `__cublas$gemm`, `__cublas$lt$matmul` and `__cublas$lt$matmul$f8`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import Fields, gpu_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.conversion import integer_range
from distxla.ops.support.expansion import Build

GEMM, MATMUL, MATMUL_F8 = "__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"
# As XLA numbers them. BIAS: a vector is added.  AUX: the activation's operand is a second result.
EPILOGUES = (
    "DEFAULT",
    "BIAS",
    "RELU",
    "BIAS_RELU",
    "GELU",
    "GELU_AUX",
    "BIAS_GELU",
    "BIAS_GELU_AUX",
    "SILU",
    "BIAS_SILU",
)
ACTIVATIONS = {"RELU": steps.relu, "GELU": steps.gelu_of_tanh, "SILU": steps.silu}
FIELDS = {
    "alpha_real",
    "alpha_imag",
    "beta",
    "dot_dimension_numbers",
    "epilogue",
    "damax_output",
    # how fast or how exact: the strides and the batch are those of the operands in memory
    "precision_config",
    "selected_algorithm",
    "autotune_workspace_size",
    "lhs_stride",
    "rhs_stride",
    "batch_size",
    "grad_x",
    "grad_y",
    "is_fp8",
    # implied by the operands
    "scale_mode",
    "has_d_scale",
}


class Operands(NamedTuple):
    """Operands by their roles; None where there is none."""

    lhs: str
    rhs: str
    matrix: str | None  # is scaled by beta and added
    bias: str | None
    lhs_scale: str | None = None
    rhs_scale: str | None = None
    matrix_scale: str | None = None
    result_scale: str | None = None


@target(GEMM, MATMUL, MATMUL_F8)
class Matmul(ExpandedTarget):
    """A matrix product: activation(alpha lhs rhs + beta C + bias).

    Operands:  lhs, rhs; C if beta is not 0; bias if the epilogue has one. With f8 the scales of lhs and rhs are
               between C and bias (with two more, of C and the result, in older dumps), that of an f8 result at the end.
    Results:   the product; the operand of a GELU_AUX epilogue's activation; the largest magnitude before the result is
               scaled, if damax_output; a workspace.
    Bias:      runs along the dimensions of the result that are fastest in memory, as many as it has.
    Source:    XLA, gemm_rewriter.cc and thunk_emitter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = gpu_fields(call, "gemm_backend_config")
        fields.only(FIELDS)
        epilogue = fields.choice("epilogue", EPILOGUES)
        if call.name == GEMM:
            fields.require(epilogue == "DEFAULT", "epilogue", f"only DEFAULT of {GEMM}")
        parts = epilogue.split("_")
        result = steps.result_shapes(call)[0]
        if not result.is_array:
            raise ConfigError(f"the first result is {result}, not an array")
        given = _operands(call, operands, fields.number("beta") != 0, "BIAS" in parts, result)
        x = scaled_product(build, fields, given, result.dtype)
        if given.bias is not None:
            bias = _along_fastest(build, given.bias, call.operands[operands.index(given.bias)], result)
            x = build.compute("add", x, build.convert(bias, build.shape(x).dtype))
        values = [x]
        if "AUX" in parts:
            values.append(steps.narrowed(build, x, result.dtype))
        activation = next((ACTIVATIONS[part] for part in parts if part in ACTIVATIONS), None)
        if activation is not None:
            fields.require(build.shape(x).dtype.is_float, "epilogue", "activations of floats")
            x = activation(build, x)
        if fields.flag("damax_output"):
            values.append(self._magnitude(call, build, x, len(values)))
        if given.result_scale is not None:
            x = steps.scaled_by(build, x, given.result_scale)
        values[0] = steps.narrowed(build, x, result.dtype)
        return steps.joined(call, build, values)

    def _magnitude(self, call: Call, build: Build, x: str, number: int) -> str:
        shapes = steps.result_shapes(call)
        if number >= len(shapes) or not shapes[number].is_array:
            raise ConfigError(f"damax_output asks for one more result, the text says {call.shape}")
        return build.convert(steps.largest_magnitude(build, x), shapes[number].dtype)


def scaled_product(build: Build, fields: Fields, given: Operands, element_type: ElementType) -> str:
    """alpha lhs rhs + beta C, in the type of the computation for results of that type."""
    require_kinds(element_type, build.shape(given.lhs).dtype, build.shape(given.rhs).dtype)
    wide = steps.compute_type(element_type)
    x = steps.dot(build, fields.dot_dimensions("dot_dimension_numbers"), given.lhs, given.rhs, wide)
    for scale in (given.lhs_scale, given.rhs_scale):
        if scale is not None:
            x = steps.scaled_by(build, x, scale)
    x = steps.scaled(build, x, factor(fields, wide))
    if given.matrix is not None:
        beta = _number(fields, "beta", wide)
        matrix = steps.scaled(build, build.convert(given.matrix, wide), beta)
        if given.matrix_scale is not None:
            matrix = steps.scaled_by(build, matrix, given.matrix_scale)
        x = build.compute("add", x, matrix)
    return x


def require_kinds(result: ElementType, *operands: ElementType) -> None:
    """Require types of one kind, but for integers, whose products may also be floats."""
    kinds = {"integer" if t.is_integer else t.kind for t in operands}
    fits = result.is_float or result.is_integer if kinds == {"integer"} else kinds == {result.kind}
    if not fits:
        raise ConfigError(f"multiplies numbers of one kind, not {' and '.join(map(str, operands))} to {result}")


def factor(fields: Fields, element_type: ElementType) -> float | complex:
    """alpha."""
    if "alpha_real" not in fields:
        raise ConfigError(f"backend_config has no {fields.name('alpha_real')!r}")
    if element_type.is_complex:
        return complex(fields.number("alpha_real"), fields.number("alpha_imag"))
    fields.require(fields.number("alpha_imag") == 0, "alpha_imag", "only 0 of real numbers")
    return _number(fields, "alpha_real", element_type)


def _number(fields: Fields, key: str, element_type: ElementType) -> float:
    """The number as a library takes it: whole for integers, which it truncates."""
    number = fields.number(key)
    if not element_type.is_integer:
        return number
    low, high = integer_range(element_type)
    fields.require(low <= number <= high, key, f"numbers that {element_type} has")
    return int(number)


def _operands(call: Call, names: Sequence[str], has_matrix: bool, has_bias: bool, result: Shape) -> Operands:
    rest = list(names)
    wanted = ["lhs", "rhs", *["C (beta is not 0)"] * has_matrix]
    is_f8 = call.name == MATMUL_F8
    scales = ["the scale of lhs", "the scale of rhs"] * is_f8
    bias = ["a bias"] * has_bias
    scaled = is_f8 and result.dtype.is_float and result.dtype.bits == 8
    forms = [[*wanted, *scales, *bias, *["the scale of the result"] * scaled]]
    if is_f8:
        forms.append([*wanted, *scales, "the scale of C", "the scale of the result", *bias])
        if scaled:
            forms.append([*wanted, *scales, *bias])  # as on AMD's devices, which don't scale the result
    form = next((f for f in forms if len(f) == len(names)), None)
    steps.operands_required(call, [len(f) for f in forms], ", ".join(forms[0]))
    by_name = dict(zip(form or (), rest))
    return Operands(
        by_name["lhs"],
        by_name["rhs"],
        by_name.get("C (beta is not 0)"),
        by_name.get("a bias"),
        by_name.get("the scale of lhs"),
        by_name.get("the scale of rhs"),
        by_name.get("the scale of C") if has_matrix else None,
        by_name.get("the scale of the result"),
    )


def _along_fastest(build: Build, vector: str, stated: Shape, result: Shape) -> str:
    """A bias at every element of the result. stated, result: with their layouts."""
    order = result.minor_to_major()[: stated.rank]
    dimensions = [0] * stated.rank
    for mine, its in zip(stated.minor_to_major(), order):
        dimensions[mine] = its
    if stated.rank > result.rank or [result.dims[d] for d in dimensions] != list(stated.dims):
        raise ConfigError(f"the bias {stated} does not fit the {stated.rank} fastest dimensions of {result}")
    # a broadcast names its dimensions in ascending order
    ascending = sorted(range(stated.rank), key=dimensions.__getitem__)
    vector = steps.transposed(build, vector, ascending)
    return build.broadcast(vector, result.dims, sorted(dimensions))
