"""A mesh of brokers under virtual time: topology, workload, faults, one run and its trace."""
