"""What the algorithms learn: studies over several seeds, held against a bar."""
