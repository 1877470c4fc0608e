"""Devices of one host: native routines over memory that all of them map."""
