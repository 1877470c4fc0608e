"""Whether a cluster may begin to compile a module."""

from __future__ import annotations

from distxla.compiler.verify.verifier import verify_module
from distxla.compiler.verify.visible_obstacles import refuse, visible_obstacles
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ops.support.one_device_groups import warn_of_one_device_groups


def require_compilable(module: Module, counts: Counts, *, given: Module) -> None:
    """VerificationError where a rule is broken, UnsupportedOpError for what can't be executed as far as it is seen; a
    DistxlaWarning, once for each module that the user gives, where groups have one device each.

    given: the user's module, of which `module` was made.
    """
    verify_module(module, counts.replicas, counts.partitions)
    refuse(module, visible_obstacles(module))
    warn_of_one_device_groups(given, counts, executed=module)


__all__ = ["require_compilable"]
