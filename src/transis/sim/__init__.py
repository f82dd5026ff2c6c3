"""The same node on a simulated network, disk and clock; faults, workloads, sweeps and demonstrations."""
