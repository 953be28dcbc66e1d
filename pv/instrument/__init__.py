"""Runs inside the code under test: plants mutants, records coverage, guards against writes. Standard library only."""
