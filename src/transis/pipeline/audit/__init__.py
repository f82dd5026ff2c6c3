"""The audit: every guarantee held against the tables, in Spark SQL."""
