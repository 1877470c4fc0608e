"""The proxy of a host: it finishes rounds and transfers between devices here and devices elsewhere, over TCP."""
