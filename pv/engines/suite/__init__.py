"""Claims of conformance suites."""
