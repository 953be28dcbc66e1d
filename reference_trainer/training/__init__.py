"""The training loop: its steps, its record and state, and evaluation."""
