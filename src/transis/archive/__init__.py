"""The stream of a group as Parquet files: an archiver is a member that writes down what it is told. docs/archive.md."""
