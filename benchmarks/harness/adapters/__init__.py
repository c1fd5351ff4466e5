"""One file per library: `make(workload, options)` starts its engine. Each runs in that library's own Python."""
