"""How the members of a group reach each other's memory."""
