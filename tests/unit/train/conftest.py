"""Puts this folder on the path, so that tests in the rooms below can import what they share."""
