"""Worker processes that try falsifiers: forked from a server, monitored, and killed with all their descendants.

tasks              builds the task of a worker: what to import, to plant and to attack
pool               runs tasks in parallel and applies their limits; `running_task` is one of them
launch             starts processes: by the fork server (`server`), or new interpreters
worker             runs in the worker: plants the mutant, imports the subject, attacks the claim
trial_from_reply   turns what a worker sent, or how it ended, into a trial
tree               lists, measures and kills processes; `server` kills those that a task leaves behind
device             which devices this machine has
"""
