"""How a version of Ray is started: the table of tested versions (docs/ray_versions.md, `make rays`).

Since 2.55 a driver finds the raylet of commands.py: 2.54 looks for the node's files in another place, and before that
gcs_server does not publish its port. Since 2.52 there are tokens. A version that is not in the table is started by
`ray.init`, since its servers' options are untested.
"""

from __future__ import annotations

from enum import Enum

from distxla.errors import ClusterError
from distxla.machine.extras import unmet
from distxla.machine.packages import installed_version


class Start(Enum):
    """The program that starts the servers."""

    SERVERS = "distxla"  # embedded.py
    INIT = "ray.init"  # plain.py


# by minor version, ascending
TESTED: dict[str, Start] = {
    "2.50": Start.INIT,
    "2.51": Start.INIT,
    "2.52": Start.INIT,
    "2.53": Start.INIT,
    "2.54": Start.INIT,
    "2.55": Start.SERVERS,
    "2.56": Start.SERVERS,
    "2.57": Start.SERVERS,
    "2.58": Start.SERVERS,
    "2.59": Start.SERVERS,
    "2.60": Start.SERVERS,
}


def require_run(what: str) -> None:
    """ClusterError where devices can't run here, for want of the extra `distxla[run]`. what: as in "a cluster"."""
    if (why := unmet(what)) is not None:
        raise ClusterError(why)


def installed() -> str:
    """The version of the package ray, found without importing it. ClusterError if it is not installed."""
    found = installed_version("ray")
    if found is None:
        raise ClusterError(unmet("running on a cluster", ["ray"]) or "the package ray has no version")
    return found


def start_of(ray: str) -> Start:
    """How Ray of this version (`2.60.0`) is started."""
    return TESTED.get(".".join(ray.split(".")[:2]), Start.INIT)


def what_is_lost(ray: str, *, tokens: bool) -> str:
    """A warning about a Ray that `ray.init` starts. tokens: whether this version has them."""
    known = [minor for minor, start in TESTED.items() if start is Start.SERVERS]
    text = (
        f"Ray {ray} is started by ray.init, which takes longer and more memory a replica: distxla starts the servers "
        f"of Ray {known[0]} to {known[-1]} itself"
    )
    if not tokens:
        text += "; without tokens, which Ray has since 2.52, other users of this machine can use it and run code as you"
    return text
