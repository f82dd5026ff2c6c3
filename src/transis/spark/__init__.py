"""The bridge to Spark: a session that starts and ends by itself, traces as files, and the archive of a group as tables."""
