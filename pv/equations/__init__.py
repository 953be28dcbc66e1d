"""Executable equations over named axes. The first group of modules does not import torch; `pv lint` uses it.

refusal      invalid texts, with key, position and hint
language     the grammar of expressions
domain       the variables and their bounds
call         how the code is called: `implemented_by`, `returns`
accuracy     dtypes, precision and tolerance
definition   one parsed equation
parse        YAML keys to definitions
values       axes, types and contents; the algebra of contents
axes         the rules of axes and types
functions    the functions of the language
interpret    the interpreter, used by type check and evaluation
typecheck    the static check of axes and types
requirements what an equation needs PyTorch for
mutants      equations with one symbol replaced
show, latex  equations for people

arrays       PyTorch, or where it is not installed `scalars`: its functions of numbers without axes, from `floats`
tensors      the algebra of float64 tensors; its functions are in `tensor_functions`
draw         random examples of a domain
evaluate     values of an equation on an example
limits       the allowed error
system       the equations of a contract with their conditions
shrink       smaller failing examples
"""
