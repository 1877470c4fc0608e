"""What a program does on all its devices, found out in this process: without a cluster, without Ray."""
