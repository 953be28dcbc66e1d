"""Results of earlier validations, reused while nothing that they depend on has changed.

cache         trials by task and environment; compares the stored digests of their dependencies with the project
dependencies  the code and files that a result depends on, with their digests
environment   interpreter, processor, packages, environment variables and source of pv: part of the key of every result
opened_files  files that native code or other programs opened
"""
