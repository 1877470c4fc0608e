"""What this machine has, and what this process may have of it."""
