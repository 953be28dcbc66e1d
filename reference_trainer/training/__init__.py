"""The training loop: its steps, its record and state, and evaluation.

loop        carries out the events of a schedule
update      one optimizer step, and the random numbers that it draws; `window` computes its gradient
evaluation  the losses on held-back rows
record      the state of a run as contexts, metrics and result
state       what is saved between two steps
flops       the floating-point operations of a step
"""
