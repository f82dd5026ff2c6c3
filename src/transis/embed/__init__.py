"""A node embedded in a program: in a thread of its own, or in a process beside it. Users reach it as `transis.Node`."""
