"""How actions are chosen."""
