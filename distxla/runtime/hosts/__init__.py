"""The hosts of a run: the driver's own, whose memory it maps, and others, which it commands over TCP."""
