"""How many devices a program or a run has."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Of replicas and of partitions; a device is one (replica, partition), its flattened id replica * partitions +
    partition."""

    replicas: int
    partitions: int

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions

    def __str__(self) -> str:
        return f"{self.replicas} replicas x {self.partitions} partitions"


UNKNOWN = Counts(0, 0)
