"""`python -m distxla`, which is the `distxla` command."""

from __future__ import annotations

import sys
from typing import NoReturn

from distxla.cli.standard_streams import open_closed


def main() -> NoReturn:
    """Run the command line; Ctrl-C while its library still loads ends it as quietly as later."""
    try:
        open_closed()
        from distxla.cli.main import main as command
    except KeyboardInterrupt:
        sys.exit(130)  # as cli.main does, which is not there yet
    command()


if __name__ == "__main__":
    main()
