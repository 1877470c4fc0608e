"""A diagnosis as text, as JSON and as an HTML page."""
