"""How groups of devices act together, and the transports that move their bytes. Imported as `distxla.collectives`."""

if __name__ != "distxla.collectives":
    raise ImportError("import distxla.collectives, not collectives")
