"""Attacks on teachers and students, for `contracts/kd-providers.yaml`; the subject is that of `falsifiers.kd_step`."""
