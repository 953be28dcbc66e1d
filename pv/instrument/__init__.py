"""Code that runs in workers: plants mutants, records coverage and files, guards against writes."""
