"""cuBLASLt's grouped matrix product."""

from __future__ import annotations

from distxla.ir.shape import Shape
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import gpu_fields
from distxla.ops.custom_calls.gpu.matmul import EPILOGUES, FIELDS, factor, require_kinds
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.ragged_and_scaled_dot import RaggedDot


@target("__cublas$lt$groupedMatmul")
class GroupedMatmul(ExpandedTarget):
    """A product in which a dimension of lhs is cut into groups: alpha ragged-dot(lhs, rhs, sizes of the groups).

    Results:  the product, computed in f32 where it is a narrower float; a workspace.
    Source:   XLA, gemm_rewriter.cc.
    """

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        fields = gpu_fields(call, "grouped_gemm_backend_config")
        fields.only({"gemm_backend_config", "ragged_dot_dimension_numbers"})
        gemm = fields.message("gemm_backend_config")
        gemm.only(FIELDS)
        gemm.require(gemm.choice("epilogue", EPILOGUES) == "DEFAULT", "epilogue", f"only DEFAULT of {call.name}")
        gemm.require(gemm.number("beta") == 0, "beta", f"only 0 of {call.name}")
        gemm.require(not gemm.flag("damax_output"), "damax_output", f"only false of {call.name}")
        numbers = fields.message("ragged_dot_dimension_numbers")
        numbers.only({"dot_dimension_numbers", "lhs_ragged_dimensions", "rhs_group_dimensions"})
        dims = numbers.dot_dimensions("dot_dimension_numbers")
        steps.operands_required(call, [3], "lhs, rhs, sizes of groups")
        op = RaggedDot(
            lhs_batch_dims=dims.lhs_batch,
            lhs_contracting_dims=dims.lhs_contracting,
            rhs_batch_dims=dims.rhs_batch,
            rhs_contracting_dims=dims.rhs_contracting,
            lhs_ragged_dims=numbers.integers("lhs_ragged_dimensions"),
            rhs_group_dims=numbers.integers("rhs_group_dimensions"),
        )
        result = steps.result_shapes(call)[0]
        if not result.is_array:
            raise ConfigError(f"the first result is {result}, not an array")
        require_kinds(result.dtype, *(shape.dtype for shape in call.operands[:2]))
        wide = steps.compute_type(result.dtype)
        x = build.add(op, *operands, shape=Shape(wide, result.dims))
        x = steps.scaled(build, x, factor(gemm, wide))
        return steps.joined(call, build, [steps.narrowed(build, x, result.dtype)])
