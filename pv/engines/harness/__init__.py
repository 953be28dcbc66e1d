"""Prove a predicate over a bounded box."""
