"""Falsifiers of the contract `background-writes`."""
