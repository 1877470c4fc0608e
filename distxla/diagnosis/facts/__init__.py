"""What is known about devices that can't go on, as data."""
