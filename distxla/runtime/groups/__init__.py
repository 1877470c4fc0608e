"""The memory that groups of devices and channels share."""
