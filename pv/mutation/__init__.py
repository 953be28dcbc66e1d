"""Automatic mutants: what can be changed in the code under contract, and how much of it is noticed."""
