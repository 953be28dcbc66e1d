"""Attacks on a distillation step, for `contracts/kd-step.yaml`.

The subject has `Batch(tokens=, labels=)`, `FixtureTeacher(table)`, `FixtureStudent(table, learning_rate)` with
`.logits_table`, `ModuleTeacher(module, vocab_size)`, `ModuleStudent(module, vocab_size)` and
`kd_step(teacher, student, batch, *, temperature, ce_weight, kd_weight)`, as
`reference_trainer.distillation.providers` has.
"""
