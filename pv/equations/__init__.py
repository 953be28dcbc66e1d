"""Executable equations over named axes.

Without importing torch, so that `pv lint` can use them:

language     the grammar of expressions, and refusals with position and hint
domain       the variables and their bounds
call         how the code is called and what it returns: `implemented_by`, `returns`
parse        YAML keys to definitions of equations, with accuracy and checks, and their type check
interpret    the rules of axes and types, the functions of the language, and the interpreter
mutants      equations with one symbol replaced
display      equations for people, as text or LaTeX

With PyTorch, or where it is not installed with `scalars` for numbers without axes:

arrays       PyTorch or `scalars`
scalars      PyTorch's interface for Python's numbers, from the functions in `floats`
tensors      the algebra of float64 tensors, exact or rounded
examples     random examples of a domain, and smaller ones that still fail
evaluate     the values and conditions of equations on an example
tolerance    the allowed error of code around these values
invariants   which invariants an example violates by more than rounding
causes       how two arrays differ, in a few words
"""
