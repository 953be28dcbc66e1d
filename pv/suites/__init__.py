"""Conformance suites: contracts about every training loop, optimizer, ..., whose subject is an adapter of it."""
