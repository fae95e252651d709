"""The output side of one link: bounded queue, shares of classes, and scheduling."""
