"""Mosaic kernels (Pallas) in schedules of XLA's TPU compiler: which of them communicate."""

from __future__ import annotations

import json
from typing import Final

from distxla.ir.instruction import Instruction

KERNEL: Final = "tpu_custom_call"


def communicates(instruction: Instruction) -> bool:
    """Whether it is a kernel that sends to other devices or waits for them; its body is bytecode that isn't read.

    The flag is `custom_call_config.has_communication` of the backend_config, which the compiler sets.
    """
    config = instruction.backend_config or ""
    if instruction.op.called_target != KERNEL or "has_communication" not in config:
        return False
    try:
        found = json.loads(config)["custom_call_config"]["has_communication"]
    except (ValueError, LookupError, TypeError):
        return False
    return found is True
