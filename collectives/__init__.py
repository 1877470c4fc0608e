"""How groups of devices act together: plans, algorithms and the transports that move bytes. Imported as `distxla.collectives`."""

if __name__ != "distxla.collectives":
    raise ImportError("import distxla.collectives, not collectives")
