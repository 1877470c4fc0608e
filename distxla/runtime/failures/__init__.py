"""Why a call fails: deadlocks, mismatches, late devices, and the report of all devices' states."""
