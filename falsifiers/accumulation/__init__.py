"""Attacks on the gradient of a window of micro-batches in one process, for `contracts/accumulation.yaml`.

The subject has `kd_window(teacher, student, batches, weights, *, parallel, metrics)`, as
`reference_trainer.training.window` has, or `train` and `Objective`, as `reference_trainer.training.loop` has.
"""
