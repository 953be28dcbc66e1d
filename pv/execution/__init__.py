"""Runs attempts: plans say which, one executor runs them in workers, and consumers read its events."""
