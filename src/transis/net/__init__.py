"""The only room with sockets and a clock: UDP multicast, unicast mesh, the driver loop."""
