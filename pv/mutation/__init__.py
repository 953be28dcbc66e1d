"""Generated mutants of the code under contract: operators, scope, status and score."""
