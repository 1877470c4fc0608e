"""Connections between hosts of one run: TCP, authenticated by a shared secret, frames of a fixed header and bytes."""
