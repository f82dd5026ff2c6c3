"""A node embedded in a program: in a thread of its own, or in a process beside it. `transis.Node` is the door."""
