"""Run falsifiers and harnesses as pytest tests.

plugin     the hooks of pytest: collects contracts and bound functions, and parametrizes them
arguments  the arguments of bound functions: subject, device, record of a run, points of a box
claims     items that are tried in workers: claims without a test of pytest, and mutants
suites     `suite`: every claim of a conformance suite as a test
"""
