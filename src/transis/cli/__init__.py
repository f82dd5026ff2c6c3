"""The command `transis`: the only room that prints."""
