"""cuDNN's convolutions with a graph of operations behind them."""

from __future__ import annotations

import re

from distxla.ir.element_type import ELEMENT_TYPES
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.convolution import (
    ACTIVATIONS,
    ConvolutionTarget,
    forward,
    in_floats,
    side_joined,
    vectors_apart,
)
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.expansion import Build

_NODE = re.compile(r"(\d+):\[(\w+)\](\w+)\(([\d,]*)\);?")
_OPERATIONS = {"scale": "multiply", "invscale": "divide", "add": "add"}  # with the next operand of the call


@target("__cudnn$convForwardGraph")
class ConvForwardGraph(ConvolutionTarget):
    """A convolution and the operations of its serialized_graph: `1:[f32]conv();2:[f32]scale(1);3:[f8e4m3fn]relu(2);`.

    Operands:   input, filter, and one for each scale, invscale and add, in the graph's order.
    Operations: conv; scale, invscale and add with a scalar or an array; relu; amax, the largest magnitude. Each is
                computed in f32 and rounded to the type that precedes it.
    Results:    the last one that is no amax; then those of amax; a workspace.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = self.fields(call)
        graph = fields.text("serialized_graph")
        nodes = _NODE.findall(graph)
        whole = "".join(match[0] for match in _NODE.finditer(graph))
        fields.require(nodes and whole == graph, "serialized_graph", "only nodes like 2:[f32]scale(1);")
        fields.require(fields.number("conv_result_scale", 1) == 1, "conv_result_scale", "only 1 with a graph")
        activation = fields.choice("activation_mode", ACTIVATIONS)
        fields.require(activation == "kNone", "activation_mode", "only kNone with a graph")
        fields.require(fields.number("side_input_scale") == 0, "side_input_scale", "only 0 with a graph")
        more = sum(operation in _OPERATIONS for _, _, operation, _ in nodes)
        steps.operands_required(call, [2 + more], f"input, filter and {more} operands of its graph")
        rest = list(operands[2:])
        values: dict[str, str] = {}
        main, magnitudes = "", []
        for number, type_name, operation, arguments in nodes:
            if type_name not in ELEMENT_TYPES:
                raise ConfigError(f"{fields.name('serialized_graph')} has the unknown type {type_name}")
            known = operation in (*_OPERATIONS, "relu", "amax") and arguments in values
            fields.require(
                known or (operation == "conv" and not arguments and not values),
                "serialized_graph",
                f"conv, and then scale, invscale, add, relu and amax of one earlier node, not {operation}({arguments})",
            )
            if operation == "conv":
                x = forward(call, build, operands[0], operands[1])
            else:
                x = build.convert(values[arguments], steps.compute_type(build.shape(values[arguments]).dtype))
            if operation in _OPERATIONS:
                operand = side_joined(call, build, rest.pop(0))
                x = _with_operand(build, _OPERATIONS[operation], in_floats(build, x), operand)
            elif operation == "relu":
                x = steps.relu(build, x)
            elif operation == "amax":
                x = steps.largest_magnitude(build, x)
            values[number] = steps.narrowed(build, x, ELEMENT_TYPES[type_name])
            if operation == "amax":
                magnitudes.append(values[number])
            else:
                main = values[number]
        return steps.joined(call, build, [vectors_apart(call, build, main), *magnitudes])


def _with_operand(build: Build, opcode: str, x: str, operand: str) -> str:
    shape, wide = build.shape(operand), build.shape(x)
    if shape.size == 1:
        return steps.scaled_by(build, x, operand, opcode)
    if shape.dims != wide.dims:
        raise ConfigError(f"the operand {shape} of the graph is neither a scalar nor of the dimension sizes of {wide}")
    return build.compute(opcode, x, build.convert(operand, wide.dtype))
