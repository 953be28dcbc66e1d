"""Attacks on the trainer's claims: ordinary Hypothesis tests that take the code under attack as `subject`."""
