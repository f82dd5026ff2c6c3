"""The archive of a group in Spark: messages and views each once, what is missing, and what parted components did apart."""
