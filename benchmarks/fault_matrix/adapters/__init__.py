"""One module per library: `make(setup)` returns its fleet as a `Subject`. Run by the Python that has it."""
