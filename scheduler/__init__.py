"""Orders of execution, and whether all devices reach the end. Imported as `distxla.scheduler`."""

if __name__ != "distxla.scheduler":
    raise ImportError("import distxla.scheduler, not scheduler")
