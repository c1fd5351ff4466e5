"""What the benchmark scripts share: workloads, engines, measuring and reporting."""
