"""Generated mutants of the code under contract: operators, scope, trials, status and score."""
