"""Proofs that a program of many devices computes what the unsharded program computes, for all inputs."""
