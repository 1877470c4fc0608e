"""`python -m distxla`, which is the `distxla` command."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

from distxla.cli.standard_streams import open_closed
from distxla.cli.stop_requests import stops

GARBAGE = 200_000  # objects between looks for cycles: imports and texts make many that stay, and each look costs


def main() -> NoReturn:
    """Run the command line. Ctrl-C and SIGTERM end it as quietly while its library still loads, or the process ends, as
    in between."""
    stops.begin()
    gc.set_threshold(GARBAGE)
    try:
        if wants_cluster(sys.argv[1:]):
            from distxla.runtime.ray.ahead import begin_ray

            begin_ray()
        open_closed()
        from distxla.cli.main import main as command

        command()
    except SystemExit:
        raise
    except BaseException:
        stops.report()
        if not isinstance(stops.first, int):
            raise
        sys.exit(stops.first)  # as cli.main does, which is not there yet
    finally:
        gc.freeze()  # else the interpreter, as it ends, looks for cycles among all that there is: a tenth of a start


def wants_cluster(arguments: list[str]) -> bool:
    """Whether the command will start an embedded Ray, as far as one can tell before the command line is read."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return False  # the next file to be opened would get the number of the closed one
    others = ("--address", "--backend", "--help", "-h")
    return arguments[:1] == ["run"] and len(arguments) > 1 and not any(a.startswith(others) for a in arguments)


if __name__ == "__main__":
    main()
