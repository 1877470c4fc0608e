"""The functions of Ray that the runtime uses, in a process that has joined it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from distxla.errors import ClusterError, DistxlaError, ReplicaLostError


class Session(Protocol):
    """A joined Ray. Actors have methods as Ray's: `actor.method.remote(...)` gives a reference at once. Thread-safe."""

    def nodes(self) -> tuple[str, list[dict[str, Any]]]:
        """The id of this process's node, and all nodes as `ray.nodes` gives them."""

    def create(self, actor: type, node: str, arguments: Sequence[tuple[Any, ...]], gpus: float = 0.0) -> list[Any]:
        """An actor on the node for each of the arguments. Does not wait for them.

        gpus: of how many each has the use, to itself: it starts when Ray has them.
        """

    def put(self, value: Any) -> Any:
        """A reference to a value; see `SharedValue`."""

    def answers(self, pending: Sequence[Any], names: Sequence[str]) -> tuple[int, list[Any] | None]:
        """How many of these references have values; all values, once they have. Blocks for 0.2 s at most.

        names: of the hosts that were asked, for errors; none for replicas. Raises actors' errors as distxla's.
        """

    def kill(self, actors: Sequence[Any]) -> None:
        """End the actors' processes."""


class SharedValue:
    """A value in Ray's store, for arguments of actors' methods. `reference` is None after the with-body, and for None.

    Ids of values begin anew with every Ray that a process joins. So a reference that outlived its Ray, in a frame that
    an error's traceback keeps, would release another value when it goes. A frame that keeps this object keeps none.
    """

    def __init__(self, session: Session, value: Any) -> None:
        self.reference: Any = None if value is None else session.put(value)

    def __enter__(self) -> SharedValue:
        return self

    def __exit__(self, *error: object) -> None:
        self.reference = None


class RayHere:
    """A Session by Ray in this process. ClusterError once Ray was shut down here."""

    def nodes(self) -> tuple[str, list[dict[str, Any]]]:
        ray = _joined_ray()
        return str(ray.get_runtime_context().get_node_id()), ray.nodes()

    def create(self, actor: type, node: str, arguments: Sequence[tuple[Any, ...]], gpus: float = 0.0) -> list[Any]:
        remote = _joined_ray().remote
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node, soft=False)
        taken = {"num_gpus": gpus} if gpus else {}  # some versions hide all GPUs from those that ask for 0
        pinned = remote_class(actor, remote).options(scheduling_strategy=there, **taken)
        return [_Actor(pinned.remote(*row)) for row in arguments]

    def put(self, value: Any) -> Any:
        return _joined_ray().put(value)

    def answers(self, pending: Sequence[Any], names: Sequence[str]) -> tuple[int, list[Any] | None]:
        ray = _joined_ray()
        asked = list(pending)
        done, rest = ray.wait(asked, num_returns=len(asked), timeout=0.2)
        for reference in done if rest else asked:  # an error is raised at once, without waiting for the others
            name = names[asked.index(reference)] if names else "a replica"
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                raise _as_ours(error, name) from error
        return len(done), None if rest else list(ray.get(asked))

    def kill(self, actors: Sequence[Any]) -> None:
        if not actors:
            return
        import ray

        if ray.is_initialized():
            for actor in actors:
                with contextlib.suppress(ray.exceptions.RayError, ValueError):
                    ray.kill(actor.handle)


@lru_cache(maxsize=8)  # kinds of actors; each simulated run has a `remote` of its own
def remote_class(actor: type, remote: Callable[..., Any]) -> Any:
    """Ray's class for an actor's, one in a process: for each new one Ray disassembles all its methods, pickles it and
    sends it to the cluster, which takes 0.02 to 0.04 s. Ray sends it again where another cluster was joined."""
    return remote(num_cpus=0, max_restarts=0)(actor)


class _Actor:
    """Ray's handle of an actor, for as long as its Ray is joined: by itself it would start another Ray then."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __getattr__(self, name: str) -> Any:
        _joined_ray()
        return getattr(self.handle, name)


def _joined_ray() -> Any:
    """The module; ClusterError once Ray was shut down, which most of Ray's functions would start anew."""
    import ray

    if not ray.is_initialized():
        raise ClusterError("Ray was shut down in this process: close the cluster, and open another one")
    return ray


def _as_ours(error: Exception, name: str) -> DistxlaError:
    """An error that Ray reports, of an actor on the host `name`."""
    import ray

    text = " ".join(str(error).split())
    if "No module named 'distxla" in text:
        return ClusterError(f"{name} has no distxla of this version: install the driver's there")
    if isinstance(error, ray.exceptions.RayTaskError):
        if isinstance(error.cause, DistxlaError):
            return error.cause
        return ClusterError(f"{name} failed: {error.cause}")
    return ReplicaLostError(f"{name} ended: {text[:500]}")
