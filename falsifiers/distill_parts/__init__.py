"""Attacks on distillations with parts of their own, for `contracts/own-parts.yaml`."""
