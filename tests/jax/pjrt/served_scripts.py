"""Run as a program: scripts with JAX on two of distxla's devices, one after the other in one process.

Stdin has a script a line, as JSON; stdout has what each prints, and behind it END and 0, or 1 where it has raised.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
import warnings
from typing import Final

from tests.jax.pjrt.scripts import BEGIN, HELPERS

END: Final = "\0end of the script: "


def main() -> None:
    """Run scripts until stdin ends. What is no Exception ends the process, which a script may have forked."""
    for line in sys.stdin:
        status = 0
        try:
            with warnings.catch_warnings():
                exec(compile(BEGIN + HELPERS + json.loads(line), "<string>", "exec"), {"__name__": "__main__"})
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            status = 1
        gc.collect()  # the script's arrays, before the next one counts its own
        print(f"{END}{status}", flush=True)


if __name__ == "__main__":
    main()
