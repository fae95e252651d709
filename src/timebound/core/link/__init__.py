"""The output side of one link: its bounded queue, shares of classes, and how it is scheduled."""
