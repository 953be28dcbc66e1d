"""Attacks on a distillation loss over logits, for `contracts/kd-loss.yaml`.

The subject has `kd_loss(student, teacher, labels, *, temperature, ce_weight, kd_weight, ignore_index=-100)`, whose
result has `.sum` and `.count`; `kd_logit_gradient` with the same arguments; and `forward_kl(student, teacher,
temperature)` over rows, as `reference_trainer.distillation.losses` has.
"""
