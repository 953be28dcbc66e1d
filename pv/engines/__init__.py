"""Engines try a claim inside a worker and return a record of the trial; the verdict is decided elsewhere.

property, equation, run, harness, suite   one folder for an engine: declaration, lint rules, attack
engine, registry   the base class of an engine; the list of engines, also from other packages
trial              the result of an attack
failures           does an exception refute the claim, or is the falsifier broken? `assertion` shows the values
code               the files of a subject and of its claims
encoding, replay   a counterexample as JSON; the example of `--replay`
seed               the seed of the examples
stream, printing   evidence that is sent while the attack runs; the output of an example
rule               a lint rule
"""
