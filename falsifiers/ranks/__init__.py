"""Attacks on data-parallel training with real processes, for `contracts/ranks.yaml`.

The subject has `DataParallel(module)` and `OneProcess()`, as `reference_trainer.training.parallel` has, or `train` and
`Objective`, as `reference_trainer.training.loop` has.
"""
