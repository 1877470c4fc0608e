"""The C interfaces of NVIDIA's libraries that are used, and where their files lie."""
