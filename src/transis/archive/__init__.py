"""The stream of a group as Parquet files, written by an archiver that is a member of the group (docs/archive.md)."""
