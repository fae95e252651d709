"""What both the node and the simulation decide about the packets of a client, beside the broker itself."""
