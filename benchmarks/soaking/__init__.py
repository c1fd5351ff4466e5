"""What the soak is made of: an environment that fails on command, an oracle, and a look at what the system holds."""
