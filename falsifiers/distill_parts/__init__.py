"""Attacks on distillations with parts of their own, for `contracts/distill-parts.yaml`."""
