"""The vocabulary of the house: ids, services, messages, views, the engine's contract, limits, errors.

This room imports nothing of ours, so every other room may import it.
"""
