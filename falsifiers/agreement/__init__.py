"""Attacks on what the processes of a run agree on, for `contracts/agreement.yaml`."""
