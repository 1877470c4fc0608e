"""What a verified module is, and what of it this version cannot execute."""
