"""How a driver comes by a Ray: one that it joins, or an embedded one of its own, which ends with it."""
