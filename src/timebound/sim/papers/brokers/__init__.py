"""Brokers as the papers may also be read, to compare with; none of this runs on a network."""
