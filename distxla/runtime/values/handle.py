"""The common base of handles on a cluster's parts."""

from __future__ import annotations

from typing import NoReturn

from distxla.ir.public_names import PublicNames


class Handle(PublicNames):
    """Belongs to the cluster, and so to the process that opened it: neither copied nor pickled."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} belongs to the process that opened the cluster: it cannot be copied or pickled")
