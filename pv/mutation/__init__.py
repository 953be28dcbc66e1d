"""Generated mutants of the code under contract: operators, scope, status and score.

generate  the mutation operators, and the mutants of a module
scope     which modules and functions have mutants, and which claims judge them
judge     the status of a mutant from its trials, and its time limit; the result of a mutation run
score     the score from the statuses; the committed file of a score, and whether it is still valid
summary   the report of `pv mutate` as text or JSON, the problems that fail it, and its exit code
"""
