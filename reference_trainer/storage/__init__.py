"""Atomic files, exclusive directories, and the exported model."""
