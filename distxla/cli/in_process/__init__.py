"""What Python imports first of all in processes that `distxla launch` starts: this folder heads their PYTHONPATH."""
