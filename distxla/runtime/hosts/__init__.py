"""The hosts of a run: the driver's own, whose memory it maps, and others, whom it tells over TCP what to do."""
