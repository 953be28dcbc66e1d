"""Run attempts: plans yield them, one executor runs them in workers, and consumers read its events."""
