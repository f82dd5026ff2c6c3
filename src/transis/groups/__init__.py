"""Process groups as a replicated state machine above an engine: names, group views, routing (docs/groups.md)."""
