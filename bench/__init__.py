"""distxla beside XLA CPU with eight host devices: `python -m bench`, or `make bench`."""
