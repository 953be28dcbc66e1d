"""A distillation from settings to files."""
