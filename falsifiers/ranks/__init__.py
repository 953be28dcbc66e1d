"""Attacks on data-parallel training with real processes, for `contracts/ranks.yaml`.

The subject has the names of `falsifiers.ranks.trainer`; for whole runs it has `train` and `Objective`, as
`reference_trainer.training.loop` has.
"""
