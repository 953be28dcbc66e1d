"""Comparison of code with executable equations.

engine      the declaration of the engine, and the payload for its worker
attack      draws examples, compares code and equation on each, and tries mutants of the equation
comparison  the comparison on one example: calls the code, checks arguments, memory layouts and tolerance
point       is an example to replay in the domain of its equation?
rules       lint rules
"""
