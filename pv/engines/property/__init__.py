"""Hypothesis tests of a subject.

engine     the declaration of the engine, and the payload for its worker
attack     runs the test on its examples, and records the trial
constants  limits the modules whose constants Hypothesis draws
"""
