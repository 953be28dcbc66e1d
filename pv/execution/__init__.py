"""Run attempts: plans yield them, one executor runs them in workers, and consumers read its events.

plan         the interface: plans, steps, events
validation   the plan of a validation; `mutants` is the plan of `pv mutate`
attempt      a claim to try, with everything that a worker and the cache need
executor     the loop that runs the attempts of a plan
consumers    what reads the events: journal, progress, --fail-fast, recorded evidence
"""
