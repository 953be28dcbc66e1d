"""Attacks on distillations none of whose parts is replaced, for `contracts/default-parts.yaml`."""
