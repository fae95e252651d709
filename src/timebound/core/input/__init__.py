"""The input side of a broker: the scheduler by topic weight, contracts, admission and delay bounds."""
