"""Several JAX processes on distxla's devices, for the tests of this folder.

with Group(2, devices=4) as group:
    assert group.printed("print(jax.device_count())") == ["8", "8"]
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SECONDS: Final = 120.0  # of a script, until the processes are asked where they are
PATIENCE_S: Final = 10.0  # the same, once another process has failed


def free_port() -> int:
    """A port of this machine that nobody uses now, of those that the kernel gives to nobody who asks for any."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


class Member:
    """One process. errors: what it, and the owner if it has started that, wrote to stderr."""

    def __init__(self, process: int, count: int, port: int, environment: dict[str, str], late: bool) -> None:
        self.process = process
        self.errors = ""
        self.told: dict[str, str] = {}
        self.popen = subprocess.Popen(
            [
                *(sys.executable, "-X", "faulthandler", "-m", "tests.jax.processes.member"),
                *(str(process), str(count), str(port), *(["late"] if late else [])),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self._reads = threading.Thread(target=self._read, daemon=True)
        self._reads.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.errors += line

    def send(self, script: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(script) + "\n")
        self.popen.stdin.flush()

    def answer(self) -> None:
        """Wait for `told`: what the last script printed, and its error; empty where the process has ended."""
        assert self.popen.stdout is not None
        self.told = {}
        line = self.popen.stdout.readline()
        self.told = json.loads(line) if line else {"printed": "", "error": "the process has ended"}

    def end(self) -> int:
        """End it; the status. Blocks until the owner has ended, too, which writes to the same pipe."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.close()
            self.popen.wait(60)
        finally:
            self.popen.kill()
        self.popen.wait()
        self._reads.join(60)
        assert not self._reads.is_alive(), "the owner of the devices has not ended"
        self.popen.stdout.close()
        self.popen.stderr.close()
        return self.popen.returncode


class Group:
    """The processes; they start with the first script, and end with `close`.

    members: by process.  late: a script initialises JAX.  last: the environment that the last process alone has.
    environment: of all, beside that of the tests.
    """

    def __init__(
        self,
        count: int,
        devices: int = 2,
        *,
        late: bool = False,
        last: Mapping[str, str] = MappingProxyType({}),
        **environment: str,
    ) -> None:
        self.count = count
        self.members: list[Member] = []
        self._ended: list[Member] = []
        self._late = late
        self._last = last
        taken = {name: value for name, value in os.environ.items() if not name.startswith(("DISTXLA_ADDR", "OMPI_"))}
        self._environment = {
            **taken,
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "distxla",
            "DISTXLA_DEVICES": str(devices),
            **environment,
        }

    def start(self) -> None:
        """Start them, if they do not run."""
        if not self.members:
            port = free_port()
            environments = [self._environment] * (self.count - 1) + [{**self._environment, **self._last}]
            self.members = [
                Member(k, self.count, port, environment, self._late) for k, environment in enumerate(environments)
            ]

    def printed(self, *bodies: str) -> list[str]:
        """What the processes print: each runs its own script, or all the same one. All must end well."""
        self.start()
        scripts = bodies if len(bodies) == self.count else bodies * self.count
        assert len(scripts) == self.count
        for member, script in zip(self.members, scripts):
            member.send(textwrap.dedent(script))
        threads = [threading.Thread(target=member.answer, daemon=True) for member in self.members]
        for thread in threads:
            thread.start()
        end, failed = time.monotonic() + SECONDS, False
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.005)
            if not failed and any(member.told.get("error") for member in self.members):
                failed, end = True, min(end, time.monotonic() + PATIENCE_S)
            if time.monotonic() > end:
                self._abort()  # faulthandler tells where they are
        told = [member.told for member in self.members]
        wrong = "".join(f"process {k}: {one['error']}\n" for k, one in enumerate(told) if one["error"])
        if wrong:
            errors = "".join(f"--- process {member.process}\n{member.errors[-4000:]}" for member in self.members)
            self._abort()
            self.close()
            raise AssertionError(f"{wrong}{errors}")
        return [one["printed"].rstrip("\n") for one in told]

    def _abort(self) -> None:
        for member in self.members:
            member.popen.send_signal(signal.SIGABRT)

    @property
    def errors(self) -> str:
        """What all have written to stderr so far, also those that have ended, but for notices of late ones."""
        lines = "".join(member.errors for member in (*self._ended, *self.members)).splitlines(keepends=True)
        return "".join(line for line in lines if " waits for process " not in line)

    def close(self) -> list[int]:
        """End them all at once; their statuses. Blocks until nothing of theirs is left."""
        members, self.members = self.members, []
        self._ended += members
        for member in members:
            assert member.popen.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                member.popen.stdin.close()
        return [member.end() for member in members]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        statuses = self.close()
        if kind is None:
            assert statuses == [0] * len(statuses)


__all__ = ["Group", "Member", "free_port"]
