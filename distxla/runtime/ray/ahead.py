"""Begins to start an embedded Ray before anything else is loaded."""

from __future__ import annotations

from distxla.machine.extras import unmet


def begin_ray() -> None:
    """Start an embedded Ray in the background. Its first process starts while this one imports what starts the rest.

    Raises nothing: the cluster that needs it tries again, and says why there can be none.
    """
    if unmet("running") is not None:
        return
    from distxla.runtime.ray.spawn import spawn_supervisor  # not for commands that need no Ray

    try:
        supervisor = spawn_supervisor()
    except OSError:
        return
    from distxla.runtime.ray import access

    access.begin(supervisor)


__all__ = ["begin_ray"]
