"""Supervision of a run: attempts one after another until it has reached a step.

until      starts the processes of an attempt, and repeats attempts
decision   is the run done, tried again, or given up?
heartbeat  signs of life of ranks: which one is silent and has to be killed?
progress   which step has the run reached?
machines   attempts on several machines
"""
