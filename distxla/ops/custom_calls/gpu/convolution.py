"""cuDNN's convolutions: forward, fused with an activation, and the two gradients."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from distxla.ir.element_type import F32, S32, ElementType
from distxla.ir.shape import Shape
from distxla.ir.window import ConvolutionDimensions, Window, WindowDimension
from distxla.ops.convolution import Convolution
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import Fields, gpu_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.reverse import Reverse
from distxla.ops.support.expansion import Build

# As XLA numbers them.
ACTIVATIONS = (
    "kNone",
    "kSigmoid",
    "kRelu",
    "kRelu6",
    "kReluX",
    "kTanh",
    "kBandPass",
    "kElu",
    "kLeakyRelu",
    "kGeluExact",
)
FIELDS = {
    "conv_result_scale",
    "activation_mode",
    "side_input_scale",
    "leakyrelu_alpha",
    "serialized_graph",
    "reordered_int8_nchw_vect",
    # how fast
    "algorithm",
    "tensor_ops_enabled",
    "scratch_size",
}


class ConvolutionTarget(ExpandedTarget):
    """Common to the convolutions: the call has a convolution's window, dim_labels and feature_group_count, always those
    of the forward convolution, whichever of its three arrays the call computes. The result has a workspace."""

    def fields(self, call: Call) -> Fields:
        fields = gpu_fields(call, "cudnn_conv_backend_config")
        fields.only(FIELDS)
        fields.require(not fields.flag("reordered_int8_nchw_vect"), "reordered_int8_nchw_vect", "only false")
        if call.op.dim_labels is None:
            raise ConfigError("the call has no dim_labels")
        if call.op.batch_group_count != 1:
            raise ConfigError(f"batch_group_count={call.op.batch_group_count}: this version executes only 1")
        if not steps.result_shapes(call)[0].is_array:
            raise ConfigError(f"the first result of {call.shape} is not an array")
        return fields


class PlainConvolution(ConvolutionTarget):
    """One of the three arrays of a convolution from the two others."""

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = self.fields(call)
        activation = fields.choice("activation_mode", ACTIVATIONS)
        fields.require(activation == "kNone", "activation_mode", f"only kNone of {call.name}")
        fields.require(fields.number("side_input_scale") == 0, "side_input_scale", f"only 0 of {call.name}")
        fields.require(not fields.text("serialized_graph"), "serialized_graph", f"none of {call.name}")
        steps.operands_required(call, [2], "two arrays")
        x = self.convolved(call, build, *operands)
        # cuDNN has no other scale than 1 here, so an absent one means 1
        scale = fields.number("conv_result_scale", 1)
        if scale != 1:
            x = steps.scaled(build, in_floats(build, x), scale)
        return steps.joined(call, build, [steps.narrowed(build, x, steps.result_shapes(call)[0].dtype)])

    @abstractmethod
    def convolved(self, call: Call, build: Build, first: str, second: str) -> str:
        """The array in the type of the computation."""


@target("__cudnn$convForward")
class ConvForward(PlainConvolution):
    """A convolution: input, filter -> output."""

    def convolved(self, call: Call, build: Build, first: str, second: str) -> str:
        return vectors_apart(call, build, forward(call, build, first, second))


@target("__cudnn$convBackwardInput")
class ConvBackwardInput(PlainConvolution):
    """The gradient of a convolution for its input: gradient of the output, filter -> gradient of the input."""

    def convolved(self, call: Call, build: Build, first: str, second: str) -> str:
        labels, groups = _labels(call), call.op.feature_group_count
        spatial = _dimension_sizes(call, steps.result_shapes(call)[0], build.shape(first))
        window = []
        for d, (dimension_size, out) in zip(call.op.window.dimensions, spatial):
            low = d.dilated_size - 1 - d.padding_low
            high = dimension_size - 1 + d.dilated_size - ((out - 1) * d.stride + 1) - low
            window.append(
                replace(
                    d,
                    stride=1,
                    padding_low=low,
                    padding_high=high,
                    base_dilation=d.stride,
                    reversal=not d.reversal,
                )
            )
        kernel = (labels.kernel_output_feature, labels.kernel_input_feature, *labels.kernel_spatial)
        if groups > 1:
            second = _with_groups_of_inputs(build, second, labels, groups)
            kernel = tuple(range(len(kernel)))
        op = Convolution(
            window=Window(tuple(window)),
            dim_labels=ConvolutionDimensions(
                labels.output_batch,
                labels.output_feature,
                labels.output_spatial,
                kernel[0],
                kernel[1],
                kernel[2:],
                labels.input_batch,
                labels.input_feature,
                labels.input_spatial,
            ),
            feature_group_count=groups,
        )
        return _added(call, build, op, first, second)


@target("__cudnn$convBackwardFilter")
class ConvBackwardFilter(PlainConvolution):
    """The gradient of a convolution for its filter: input, gradient of the output -> gradient of the filter."""

    def convolved(self, call: Call, build: Build, first: str, second: str) -> str:
        labels = _labels(call)
        window = []
        for d, (dimension_size, out) in zip(
            call.op.window.dimensions, _dimension_sizes(call, build.shape(first), build.shape(second))
        ):
            reached = (out - 1) * d.stride + 1
            high = (d.size - 1) * d.window_dilation + reached - dimension_size - d.padding_low
            window.append(WindowDimension(out, d.window_dilation, d.padding_low, high, 1, d.stride))
        op = Convolution(
            window=Window(tuple(window)),
            dim_labels=ConvolutionDimensions(
                labels.input_feature,
                labels.input_batch,
                labels.input_spatial,
                labels.output_batch,
                labels.output_feature,
                labels.output_spatial,
                labels.kernel_input_feature,
                labels.kernel_output_feature,
                labels.kernel_spatial,
            ),
            batch_group_count=call.op.feature_group_count,
        )
        x = _added(call, build, op, first, second)
        reversed_ = tuple(n for n, d in zip(labels.kernel_spatial, call.op.window.dimensions) if d.reversal)
        return build.add(Reverse(dimensions=reversed_), x) if reversed_ else x


@target("__cudnn$convBiasActivationForward")
class ConvBiasActivationForward(ConvolutionTarget):
    """A convolution and the operations after it: activation(scale conv(input, filter) + side_scale side_input + bias).

    Operands:  input, filter, bias (one number an output feature), side_input if its scale is not 0.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = self.fields(call)
        fields.require(not fields.text("serialized_graph"), "serialized_graph", f"none of {call.name}")
        if "conv_result_scale" not in fields:
            raise ConfigError(f"backend_config has no {fields.name('conv_result_scale')!r}")
        side_scale = fields.number("side_input_scale")
        what = "input, filter, bias" + ", side_input (side_input_scale is not 0)" * (side_scale != 0)
        # a side input that is scaled by 0 is not read
        steps.operands_required(call, [4] if side_scale != 0 else [3, 4], what)
        x = in_floats(build, forward(call, build, operands[0], operands[1]))
        wide = build.shape(x)
        x = steps.scaled(build, x, fields.number("conv_result_scale"))
        if side_scale != 0:
            side = build.convert(side_joined(call, build, operands[3]), wide.dtype)
            side = steps.scaled(build, side, side_scale)
            x = build.compute("add", x, side)
        bias = build.shape(operands[2])
        feature = joined_labels(call).output_feature
        if bias.size != wide.dims[feature] or bias.true_rank > 1:
            raise ConfigError(f"the bias {bias} is not one number for each of {wide.dims[feature]} output features")
        vector = build.reshape(build.convert(operands[2], wide.dtype), (bias.size,))
        x = build.compute("add", x, build.broadcast(vector, wide.dims, (feature,)))
        x = vectors_apart(call, build, _activated(build, x, fields))
        return steps.joined(call, build, [steps.narrowed(build, x, steps.result_shapes(call)[0].dtype)])


def _activated(build: Build, x: str, fields: Fields) -> str:
    match fields.choice("activation_mode", ACTIVATIONS):
        case "kNone":
            return x
        case "kSigmoid":
            return steps.sigmoid(build, x)
        case "kRelu":
            return steps.relu(build, x)
        case "kRelu6":
            return steps.limited_relu(build, x, 6)
        case "kTanh":
            return build.compute("tanh", x)
        case "kElu":
            return steps.elu(build, x)
        case "kLeakyRelu":
            return steps.leaky_relu(build, x, fields.number("leakyrelu_alpha"))
        case "kGeluExact":
            return steps.gelu(build, x)
    known = "kNone, kSigmoid, kRelu, kRelu6, kTanh, kElu, kLeakyRelu, kGeluExact"
    fields.require(False, "activation_mode", f"only {known}")
    return x


def forward(call: Call, build: Build, lhs: str, rhs: str) -> str:
    """The convolution that the call's attributes describe, `vectors_joined`."""
    labels = joined_labels(call)
    op = Convolution(window=call.op.window, dim_labels=labels, feature_group_count=call.op.feature_group_count)
    stated = _labels(call)
    lhs = vectors_joined(build, lhs, _input(stated), stated.input_feature)
    rhs = vectors_joined(build, rhs, _kernel(stated), stated.kernel_input_feature)
    result = steps.result_shapes(call)[0]
    _, dims = _joined(result, _output(stated), stated.output_feature)
    return build.add(op, lhs, rhs, shape=Shape(_sum_type(build.shape(lhs).dtype), dims or result.dims))


# --- arrays with one dimension more than dim_labels name: features are vectors along it ---------------------------


def vectors_joined(build: Build, operand: str, named: tuple[int, ...], feature: int) -> str:
    """The operand with its nameless dimension, where it has one, joined to the dimension of features."""
    order, dims = _joined(build.shape(operand), named, feature)
    return build.reshape(steps.transposed(build, operand, order), dims) if dims else operand


def side_joined(call: Call, build: Build, side: str) -> str:
    """An array like the result, `vectors_joined`."""
    labels = _labels(call)
    return vectors_joined(build, side, _output(labels), labels.output_feature)


def vectors_apart(call: Call, build: Build, x: str) -> str:
    """The result as the text states it, from its `vectors_joined`."""
    labels, shape = _labels(call), steps.result_shapes(call)[0]
    order, dims = _joined(shape, _output(labels), labels.output_feature)
    if not dims:
        return x
    apart = build.reshape(x, [shape.dims[d] for d in order])
    return steps.transposed(build, apart, [order.index(d) for d in range(shape.rank)])


def joined_labels(call: Call) -> ConvolutionDimensions:
    """dim_labels of the arrays as `vectors_joined`."""
    labels = _labels(call)
    shapes = (*call.operands[:2], steps.result_shapes(call)[0])
    numbers: list[int | tuple[int, ...]] = []
    for shape, named in zip(shapes, (_input(labels), _kernel(labels), _output(labels))):
        nameless = _nameless(shape, named)
        left = [n - (nameless is not None and nameless < n) for n in named]
        numbers += [*left[:2], tuple(left[2:])]
    return ConvolutionDimensions(*numbers)  # type: ignore[arg-type]


def _joined(shape: Shape, named: tuple[int, ...], feature: int) -> tuple[list[int], tuple[int, ...]]:
    """The order that puts a nameless dimension behind the features, and the dimension sizes once it is joined; () for
    none."""
    nameless = _nameless(shape, named)
    order = [d for d in range(shape.rank) if d != nameless]
    if nameless is None:
        return order, ()
    dims = tuple(shape.dims[d] * (shape.dims[nameless] if d == feature else 1) for d in order)
    order.insert(order.index(feature) + 1, nameless)
    return order, dims


def _nameless(shape: Shape, named: tuple[int, ...]) -> int | None:
    missing = [d for d in range(shape.rank) if d not in named]
    return missing[0] if len(missing) == 1 and shape.rank == len(named) + 1 else None


def _input(labels: ConvolutionDimensions) -> tuple[int, ...]:
    return labels.input_batch, labels.input_feature, *labels.input_spatial


def _kernel(labels: ConvolutionDimensions) -> tuple[int, ...]:
    return labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial


def _output(labels: ConvolutionDimensions) -> tuple[int, ...]:
    return labels.output_batch, labels.output_feature, *labels.output_spatial


def in_floats(build: Build, x: str) -> str:
    """Sums of integers as f32; floats as they are."""
    return build.convert(x, F32) if build.shape(x).dtype.is_integer else x


def _added(call: Call, build: Build, op: Convolution, lhs: str, rhs: str) -> str:
    dims = steps.result_shapes(call)[0].dims
    return build.add(op, lhs, rhs, shape=Shape(_sum_type(build.shape(lhs).dtype), dims))


def _sum_type(element_type: ElementType) -> ElementType:
    """The type in which products of that type are summed."""
    return S32 if element_type.is_integer else steps.compute_type(element_type)


def _labels(call: Call) -> ConvolutionDimensions:
    labels = call.op.dim_labels
    assert labels is not None
    return labels


def _dimension_sizes(call: Call, input_shape: Shape, output: Shape) -> list[tuple[int, int]]:
    """The input's and the output's size in every spatial dimension, which the window must connect."""
    labels, window = _labels(call), call.op.window.dimensions
    if not len(labels.input_spatial) == len(labels.output_spatial) == len(window):
        raise ConfigError(
            f"the window has {len(window)} dimensions, dim_labels {len(labels.input_spatial)} spatial ones"
        )
    if {input_shape.rank, output.rank} != {len(window) + 2}:
        raise ConfigError(f"{input_shape} and {output} are not of the {len(window) + 2} dimensions of dim_labels")
    pairs = []
    for d, i, o in zip(window, labels.input_spatial, labels.output_spatial):
        dimension_size, out = input_shape.dims[i], output.dims[o]
        if d.base_dilation != 1 or d.stride < 1 or d.window_dilation < 1 or d.size < 1:
            raise ConfigError("the window of a gradient has sizes and strides from 1 on, and no base dilation")
        if d.output_size(dimension_size) != out:
            raise ConfigError(
                f"the window gives {d.output_size(dimension_size)} places over {dimension_size} elements, not {out}"
            )
        pairs.append((dimension_size, out))
    return pairs


def _with_groups_of_inputs(build: Build, kernel: str, labels: ConvolutionDimensions, groups: int) -> str:
    """A kernel [inputs / groups, outputs, window] as [outputs / groups, inputs, window], for the way back."""
    shape = build.shape(kernel)
    order = (labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial)
    if sorted(order) != list(range(shape.rank)) or shape.dims[order[1]] % groups:
        raise ConfigError(f"the filter {shape} is not one of {groups} groups by dim_labels")
    inputs, outputs, *spatial = (shape.dims[d] for d in order)
    kernel = steps.transposed(build, kernel, order)
    kernel = build.reshape(kernel, (inputs, groups, outputs // groups, *spatial))
    kernel = build.transpose(kernel, (2, 1, 0, *range(3, 3 + len(spatial))))
    return build.reshape(kernel, (outputs // groups, groups * inputs, *spatial))
