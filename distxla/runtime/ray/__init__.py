"""The Ray of a driver: one that it joins, or an embedded one of its own, which ends with it."""
