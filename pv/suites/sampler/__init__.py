"""The suite `sampler`: claims that hold for every correct sampler of the examples of an epoch."""
