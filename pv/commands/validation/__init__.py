"""The stages of a validation: attempts, their tasks, their order, and the trials of mutants."""
