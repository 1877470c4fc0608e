"""A process with JAX on two of distxla's devices, for the scripts of all files of this folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Final

from tests.jax.pjrt.scripts import ROOT, joined, parted
from tests.jax.pjrt.served_scripts import END

DEVICES: Final = 2
BAD_INSTALLS: Final = {  # run one after the other as the process begins
    "no devices": "distxla.jax.install(partitions=0)",
    "bad memory": "distxla.jax.install(device_memory='much')",
    "bad backend": "distxla.jax.install(backend='tpu')",
    "other versions": """
        from distxla.jax.private import backends as private_backends
        tested, private_backends.PLUGIN_TESTED = private_backends.PLUGIN_TESTED, ((1, 0), (1, 1))
        try:
            distxla.jax.install()
        finally:
            private_backends.PLUGIN_TESTED = tested
    """,
    # the last one: the first of its calls is the process's own
    "late": f"distxla.jax.install(partitions={DEVICES}); jax.devices(); distxla.jax.install()",
}


class Served:
    """The process. It starts with the first script, again after one that has ended it, and ends with `close`.

    errors: the file of what it writes to stderr.  bad_installs: what each of BAD_INSTALLS raises.
    """

    def __init__(self, errors: Path) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = errors
        self.bad_installs: dict[str, str] = {}

    def printed_by_each(self, bodies: dict[str, str]) -> dict[str, str]:
        """What each script prints, by name; they share their names. All must end well."""
        self.start()
        return self._printed(bodies)

    def printed(self, body: str) -> str:
        """What a script prints that must end well."""
        return self.printed_by_each({"it": body})["it"]

    def start(self) -> None:
        """Start the process, if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tests.jax.pjrt.served_scripts"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self.bad_installs = self._printed({name: _caught(body) for name, body in BAD_INSTALLS.items()})

    def close(self) -> None:
        """End the process; blocks. The interpreter must end well, whatever the scripts have left to it."""
        if self._process is None:
            return
        try:
            out, _ = self._process.communicate(timeout=60)
        finally:
            self._process.kill()
        assert (self._process.returncode, out) == (0, ""), self._last_errors()

    def _printed(self, bodies: dict[str, str], seconds: float = 120) -> dict[str, str]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(joined(bodies)) + "\n")
        process.stdin.flush()
        late = threading.Timer(seconds, process.send_signal, (signal.SIGABRT,))  # faulthandler prints where it is
        late.start()
        found = ""
        for line in process.stdout:
            found += line
            if END in line:
                break  # else the process has ended
        late.cancel()
        out, _, status = found.partition(END)
        assert status.strip() == "0", found + self._last_errors()
        return parted(out)

    def _last_errors(self) -> str:
        return self._errors.read_text(errors="replace")[-3000:]


def _caught(body: str) -> str:
    text = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"try:\n{text}\nexcept Exception as error:\n    print(error)"
