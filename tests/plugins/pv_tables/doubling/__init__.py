"""A suite for functions that double a number."""
