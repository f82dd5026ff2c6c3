"""The process that runs a node for many local clients: settings, sessions, admin socket, logs, traces, metrics."""
