"""The shared words of the communication protocols, each declared once, and their documentation."""
