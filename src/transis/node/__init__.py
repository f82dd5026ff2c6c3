"""A whole node without I/O: identity, sealing, an engine, reassembly. Drivers (net, sim) run it."""
