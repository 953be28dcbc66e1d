"""Prove a predicate over a bounded box.

engine    the declaration of the engine, and the payload for its worker
prove     enumerates the points of the box, and combines this proof with the proof by a solver
symbolic  the proof by a solver, CrossHair
point     tries the predicate at one point
rules     lint rules: predicate and code keep no state and have no side effects
names     the definitions of the project that an expression may evaluate to, for these rules and `pv.linting`
"""
