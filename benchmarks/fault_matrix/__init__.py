"""The kill matrix: what becomes of a vector environment, ours or a peer's, when one of its environments fails."""
