"""All devices in one process, each op by its evaluate: the oracle."""
