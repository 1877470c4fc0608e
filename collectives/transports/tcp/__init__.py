"""The proxy of a host: it finishes what devices here began together with devices elsewhere, over TCP."""
