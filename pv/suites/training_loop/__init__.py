"""The suite `training-loop`: claims that hold for every correct training loop, and what an adapter needs."""
