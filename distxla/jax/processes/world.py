"""Which JAX processes there are, which devices each of them has, and what must be equal in all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from distxla.errors import ClusterError
from distxla.jax.processes.fields import from_json
from distxla.lazy_dataclass import dataclass, field

_APART: Final = ("host", "machine", "pid", "argv", "needed")  # what may differ in an Introduction


@dataclass(frozen=True)
class World:
    """The JAX processes of a run. Each has `local` devices, whose flattened ids follow each other.

    process: this one's index.  generation: how many clients of JAX this process has had before.
    """

    process: int
    processes: int
    local: int
    generation: int = 0

    @property
    def devices(self) -> int:
        return self.processes * self.local

    def slice_of(self, process: int) -> range:
        """The devices of a process."""
        return range(process * self.local, (process + 1) * self.local)

    def process_of(self, device: int) -> int:
        return device // self.local

    def members(self, devices: Iterable[int]) -> tuple[int, ...]:
        """The processes that have some of these devices, in order."""
        return tuple(sorted({device // self.local for device in devices}))


class KeyValueStore(Protocol):
    """JAX's store of the coordination service."""

    def put(self, key: str, value: bytes) -> None:
        """ClusterError where the key is there already."""

    def get(self, key: str, seconds: float) -> bytes:
        """Blocks until somebody has put it; ClusterError after so many seconds."""


@dataclass(frozen=True)
class Introduction:
    """What a process tells the owner of itself. All but `host`, `machine`, `pid`, `argv` and `needed` must be equal in
    all, and without an address `boot_id`.

    boot_id: of its machine.  machine: as owner_file.machine_of_process gives it.  devices: of this process.  address,
    device_memory, backend, checks: as of the plugin's settings.  jax_config: of JAX's options those that change what is
    compiled.  script: its name without folders.  needed: key of what is known in the cache of the script's last run; ""
    for none.
    """

    boot_id: str
    host: str
    pid: int
    devices: int
    address: str | None = None
    device_memory: int | str | None = None
    backend: str = "cpu"
    checks: tuple[str, ...] = ()
    distxla: str = ""
    jax: str = ""
    jaxlib: str = ""
    python: str = ""
    xla_flags: str = ""
    jax_config: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""
    argv: tuple[str, ...] = ()
    needed: str = ""
    machine: str = ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def of_json(found: dict[str, Any]) -> Introduction:
        """ClusterError where it is none."""
        return from_json(Introduction, found)


_HINTS: Final = {
    "boot_id": "give processes of several machines the address of a Ray that runs on all of them, DISTXLA_ADDRESS",
    "devices": "give each process the same DISTXLA_DEVICES",
    "distxla": "install the same version everywhere",
    "jax": "install the same version everywhere",
    "jaxlib": "install the same version everywhere",
}


def difference_of(given: Sequence[Introduction]) -> str:
    """Where the introductions, by process, differ; "" for nowhere."""
    first = given[0]
    lines = []
    apart = _APART if first.address is None else (*_APART, "boot_id")
    for name in (one.name for one in dataclasses.fields(Introduction) if one.name not in apart):
        expected = getattr(first, name)
        for process, other in enumerate(given):
            found = getattr(other, name)
            if found == expected:
                continue
            if isinstance(expected, Mapping) and isinstance(found, Mapping):
                keys = [key for key in sorted({*expected, *found}) if expected.get(key) != found.get(key)]
                lines += [
                    f"{key}: process 0 has {expected.get(key)!r}, process {process} has {found.get(key)!r}"
                    for key in keys
                ]
            else:
                hint = f" (hint: {_HINTS[name]})" if name in _HINTS else ""
                lines.append(f"{name}: process 0 has {expected!r}, process {process} has {found!r}{hint}")
            break
    return "; ".join(lines)


def require_equal(given: Sequence[Introduction]) -> None:
    """ClusterError where the introductions, by process, differ."""
    if found := difference_of(given):
        raise ClusterError(f"the processes can't run together: {found}")


__all__ = ["Introduction", "KeyValueStore", "World", "difference_of", "require_equal"]
