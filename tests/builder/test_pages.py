"""Every heading of the Operation Semantics pages has its methods, with the pages' arguments."""

from __future__ import annotations

import inspect

import pytest

import distxla as dx
from tests.builder.examples_cases import EXAMPLES

UNARY = (
    "abs cbrt ceil clz cos erf exp expm1 floor imag is_finite log log1p logistic neg not_ population_count real round "
    "round_nearest_even rsqrt sign sin sqrt tan tanh logical_not"
)
BINARY = (
    "add sub mul div pow rem max min and_ or_ xor shift_left shift_right_arithmetic shift_right_logical atan2 complex "
    "logical_and logical_or"
)
COMPARISONS = "eq ne ge gt le lt"
PAIR = "lhs rhs broadcast_dimensions"

# heading -> {method: the pages' arguments in their order}
HEADINGS: dict[str, dict[str, str]] = {
    "AfterAll": {"after_all": "operands"},
    "AllGather": {"all_gather": "operand all_gather_dim shard_count replica_groups channel_id"},
    "AllReduce": {"all_reduce": "operand computation replica_groups channel_id"},
    "AllToAll": {"all_to_all": "operand split_dimension concat_dimension split_count replica_groups"},
    "BatchNormGrad": {"batch_norm_grad": "operand scale mean variance grad_output epsilon feature_index"},
    "BatchNormInference": {"batch_norm_inference": "operand scale offset mean variance epsilon feature_index"},
    "BatchNormTraining": {"batch_norm_training": "operand scale offset epsilon feature_index"},
    "BitcastConvertType": {"bitcast_convert_type": "operand new_element_type"},
    "Broadcast": {"broadcast": "operand broadcast_sizes"},
    "BroadcastInDim": {"broadcast_in_dim": "operand out_dim_size broadcast_dimensions"},
    "Call": {"call": "computation args"},
    "CompositeCall": {"composite_call": "computation args name composite_attributes version"},
    "Cholesky": {"cholesky": "a lower"},
    "Clamp": {"clamp": "min operand max"},
    "Collapse": {"collapse": "operand dimensions"},
    "CollectivePermute": {"collective_permute": "operand source_target_pairs"},
    "Concatenate": {"concatenate": "operands dimension", "concat_in_dim": "operands dimension"},
    "Conditional": {
        "conditional": "pred true_operand true_computation false_operand false_computation "
        "branch_index branch_computations branch_operands"
    },
    "Conv (convolution)": {"conv": "lhs rhs window_strides padding feature_group_count batch_group_count"},
    "ConvWithGeneralPadding (convolution)": {
        "conv_with_general_padding": "lhs rhs window_strides padding lhs_dilation rhs_dilation feature_group_count "
        "batch_group_count",
        "conv_with_general_dimensions": "lhs rhs window_strides padding dimension_numbers",
        "conv_general": "lhs rhs window_strides padding dimension_numbers",
        "conv_general_dilated": "lhs rhs window_strides padding lhs_dilation rhs_dilation dimension_numbers "
        "feature_group_count batch_group_count precision_config preferred_element_type",
    },
    "ConvertElementType": {"convert_element_type": "operand new_element_type"},
    "CrossReplicaSum": {"cross_replica_sum": "operand"},
    "CustomCall": {"custom_call": "target_name args shape"},
    "Dot": {"dot": "lhs rhs"},
    "DotGeneral": {"dot_general": "lhs rhs dimension_numbers precision_config preferred_element_type"},
    "DynamicSlice": {"dynamic_slice": "operand start_indices size_indices"},
    "DynamicUpdateSlice": {"dynamic_update_slice": "operand update start_indices"},
    "Element-wise binary arithmetic operations": dict.fromkeys(BINARY.split(), PAIR),
    "Element-wise comparison operations": {
        **dict.fromkeys(COMPARISONS.split(), PAIR),
        **dict.fromkeys([f"{name}_total_order" for name in COMPARISONS.split()], PAIR),
    },
    "Element-wise unary functions": dict.fromkeys(UNARY.split(), "operand"),
    "Fft": {"fft": "operand fft_type fft_length"},
    "Gather": {
        "gather": "operand start_indices offset_dims collapsed_slice_dims slice_sizes start_index_map index_vector_dim "
        "indices_are_sorted"
    },
    "GetDimensionSize": {"get_dimension_size": "operand dimension"},
    "SetDimensionSize": {"set_dimension_size": "operand size dimension"},
    "GetTupleElement": {"get_tuple_element": "tuple index"},
    "Infeed": {"infeed": "shape", "outfeed": "operand"},
    "Iota": {"iota": "shape iota_dimension"},
    "Map": {"map": "operands computation dimensions static_operands"},
    "OptimizationBarrier": {"optimization_barrier": "operand"},
    "Pad": {"pad": "operand padding_value padding_config"},
    "Recv": {"recv": "shape channel_handle", "recv_done": "context"},
    "Reduce": {"reduce": "operands init_values computation dimensions"},
    "ReducePrecision": {"reduce_precision": "operand mantissa_bits exponent_bits"},
    "ReduceScatter": {
        "reduce_scatter": "operand computation scatter_dimension shard_count replica_groups channel_id",
    },
    "ReduceWindow": {
        "reduce_window": "operands init_values computation window_dimensions window_strides padding base_dilations "
        "window_dilations"
    },
    "ReplicaId": {"replica_id": ""},
    "Reshape": {"reshape": "operand dimensions new_sizes"},
    "Rev (reverse)": {"rev": "operand dimensions"},
    "RngBernoulli": {"rng_bernoulli": "mean shape"},
    "RngNormal": {"rng_normal": "mu sigma shape"},
    "RngUniform": {"rng_uniform": "a b shape"},
    "RngBitGenerator": {"rng_bit_generator": "algorithm initial_state shape"},
    "Scatter": {
        "scatter": "operands scatter_indices updates update_computation index_vector_dim update_window_dims "
        "inserted_window_dims scatter_dims_to_operand_dims indices_are_sorted unique_indices"
    },
    "Select": {"select": "pred on_true on_false"},
    "SelectAndScatter": {
        "select_and_scatter": "operand select window_dimensions window_strides padding source init_value scatter"
    },
    "Send": {"send": "operand channel_handle", "send_done": "context"},
    "Slice": {"slice": "operand start_indices limit_indices strides"},
    "Sort": {"sort": "operands comparator dimension is_stable"},
    "Transpose": {"transpose": "operand permutation"},
    "TriangularSolve": {"triangular_solve": "a b left_side lower unit_diagonal transpose_a"},
    "Tuple": {"tuple": "elements"},
    "While": {"while_": "condition body init"},
}
# tested in test_transfers.py
WITHOUT_EXAMPLE = {"AfterAll", "CustomCall", "OptimizationBarrier", "Recv", "Send"}


@pytest.mark.parametrize("heading", HEADINGS)
def test_methods_have_the_pages_arguments(heading: str) -> None:
    for name, arguments in HEADINGS[heading].items():
        method = getattr(dx.XlaBuilder, name)
        have = [p for p in inspect.signature(method).parameters if p != "self"]
        assert [p for p in have if p in arguments.split()] == arguments.split(), f"{name}: {have}"
        assert method.__doc__, f"{name} has no docstring"


def test_every_heading_has_an_example() -> None:
    headings = {heading.removesuffix(" (convolution)").removesuffix(" (reverse)") for heading in HEADINGS}
    known = {example.heading for example in EXAMPLES}
    assert headings - known == WITHOUT_EXAMPLE


@pytest.mark.parametrize("name", sorted(n for n, f in vars(dx.XlaBuilder).items() if callable(f) and n[0] != "_"))
def test_what_the_builder_adds_itself_is_documented(name: str) -> None:
    assert getattr(dx.XlaBuilder, name).__doc__
