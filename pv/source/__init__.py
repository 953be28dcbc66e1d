"""Reads the code of a project without importing it: resolves names, walks syntax trees, digests and edits source."""
