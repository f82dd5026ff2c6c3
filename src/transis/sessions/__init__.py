"""What clients and a node say to each other, and the node's side of it, without I/O."""
