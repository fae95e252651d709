"""The mesh on a network: open links to neighbours and carry out the core's orders."""
