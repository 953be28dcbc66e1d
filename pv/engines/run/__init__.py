"""Reference runs and observed commands, judged by their records.

engine         two engines: predicates over the record of a run, and claims about the trace of an observed command
reference_run  executes a run of the contract, and writes and reads its record
"""
