"""Conformance suites: contracts that hold for every training loop, optimizer, and so on; the subject is an adapter."""
