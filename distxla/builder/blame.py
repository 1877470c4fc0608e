"""Which argument of a builder's method a broken rule is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distxla.builder.call_site import call_arguments, call_site, shown
from distxla.errors import VerificationError

# An op's attribute -> the arguments of the methods that set it, in the order in which they are looked for.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "shape": (
        "shape", "new_sizes", "out_dim_size", "broadcast_sizes", "new_element_type", "preferred_element_type",
        "shard_count", "split_count", "dimensions",
    ),
    "dimensions": (
        "dimensions", "dimension", "permutation", "broadcast_dimensions", "all_gather_dim", "scatter_dimension",
        "split_dimension",
    ),
    "to_apply": ("computation", "comparator", "update_computation", "decomposition"),
    "condition": ("condition",),
    "branch_computations": ("branch_computations", "true_computation"),
    "true_computation": ("true_computation",),
    "window": ("window_dimensions", "window_strides", "padding"),
    "padding": ("padding_config", "padding"),
    "slice": ("start_indices", "start_index"),
    "dynamic_slice_sizes": ("size_indices",),
    "dim_labels": ("dimension_numbers",),
    "lhs_batch_dims": ("dimension_numbers",),
    "lhs_contracting_dims": ("dimension_numbers",),
    "rhs_batch_dims": ("dimension_numbers",),
    "rhs_contracting_dims": ("dimension_numbers",),
    "operand_precision": ("precision_config",),
    "distribution": ("shape",),
    "channel_id": ("channel_id", "channel_handle"),
    "custom_call_target": ("target_name",),
    "output_to_operand_aliasing": ("output_operand_aliasing",),
    "type": ("comparison_type",),
}  # fmt: skip


def broken_rule(message: str, at: str | None = None, culprits: Iterable[Any] = ()) -> VerificationError:
    """The error of the call that the program is in: its place in the caller's file, and the argument to look at.

    at: the argument, or the attribute of the op that it sets; None or "operands" where several took part.  culprits:
    values of which one was given as an argument.
    """
    site, arguments = call_site(), call_arguments()
    name = next((n for n in (at, *_ARGUMENTS.get(at or "", ())) if n in arguments), None)
    if name is None:
        name = next(
            (n for n, value in arguments.items() if any(value is c or _holds(value, c) for c in culprits)), None
        )
    call = f"{site.method}({', '.join(f'{n}={shown(value)}' for n, value in arguments.items())})"
    where = f"argument {name} of {call}" if name is not None else f"in {call}"
    return VerificationError(f"{message}; {where}" if site.method else message, site.location())


def _holds(value: Any, culprit: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(v is culprit or _holds(v, culprit) for v in value)
