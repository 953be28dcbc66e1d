"""Reads the code of a project without importing it."""
