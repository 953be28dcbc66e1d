"""Code that runs in workers: plants mutants, records coverage and files, guards against writes.

import_hook   plants the mutant while the module is imported; `swap` replaces an object
coverage      which functions and statements ran
files         which files were read; `readers` finds the code that read them
processes     the same for child processes; `process_trace` merges their records
write_guard   generated mutants may not write to the project
code_cache    compiled modules, shared by the workers of one run
"""
