"""What is left when the processes of an embedded Ray have ended, or a question to one was interrupted."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from distxla.errors import ClusterError
from distxla.runtime.ray import elsewhere
from distxla.runtime.ray.embedded import EmbeddedRay


def test_closing_leaves_nothing_of_a_supervisor_that_was_killed() -> None:
    ray = EmbeddedRay(elsewhere=True)
    ray._supervisor.kill()
    ray._supervisor.wait()
    with pytest.raises(ClusterError, match="supervisor"):
        ray._send({"hold": True})
    ray.close()
    assert not os.path.exists(ray._place.private)


def test_the_answer_of_an_interrupted_question_is_nobody_elses() -> None:
    here, there = socket.socketpair()
    interrupts = iter([KeyboardInterrupt()])

    def check() -> None:
        for interrupt in interrupts:
            raise interrupt

    session = elsewhere.RayElsewhere(here, check)
    with here, there:
        with pytest.raises(KeyboardInterrupt):
            session.nodes()
        with contextlib.suppress(BrokenPipeError):
            elsewhere.send(there, (None, ("node", [])))
        with pytest.raises(ClusterError, match="has ended"):
            session.answers([], [])
