"""The data pipeline on Spark: tables of what was recorded, the audit of every guarantee, measures, the report."""
