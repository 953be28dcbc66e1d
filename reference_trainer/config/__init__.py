"""Settings, their types, and their sources.

settings  every setting with its group, default and help; rules between settings, and which have no effect
kinds     the types of settings: parsing, validation, help and error messages
sources   values from flags, environment variables and a file, in this order of precedence
place     the rank of a process, from the variables of its launcher
"""
