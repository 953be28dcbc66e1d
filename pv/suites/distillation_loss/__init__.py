"""The suite `distillation-loss`: claims that hold for every correct loss between a student's and a teacher's logits."""
