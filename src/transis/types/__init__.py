"""The vocabulary of the house: ids, views, outputs, parameters, limits, errors. It imports nothing of ours."""
