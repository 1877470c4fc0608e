"""Linear schedules, and who waits for whom. Imported as `distxla.scheduler`."""

if __name__ != "distxla.scheduler":
    raise ImportError("import distxla.scheduler, not scheduler")
