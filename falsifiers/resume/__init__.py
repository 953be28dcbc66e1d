"""Attacks on runs that are cut, killed and resumed, for `contracts/resume.yaml`."""
