"""The distillation loss, its gradient, the step, and the teachers and students it works on."""
