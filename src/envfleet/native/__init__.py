"""Environments compiled from C++: which there are, and what lies between them and Python."""
