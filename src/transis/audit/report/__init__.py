"""The report: small tables of what was found and measured, as one page for people and as JSON. Drawing it needs no Spark."""
