"""Attacks on the value of a distillation loss over logits, for `contracts/kd-loss.yaml`.

The subject has `kd_loss(student, teacher, labels, *, temperature, ce_weight, kd_weight, ignore_index=-100)`, whose
result has `.sum` and `.count`; and `kd_logit_gradient` with the same arguments, as
`reference_trainer.distillation.losses` has.
"""
