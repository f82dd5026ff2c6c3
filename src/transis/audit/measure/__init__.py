"""How fast it was and what happened: tables that the report draws, out of what nodes recorded."""
