"""The suite `optimizer`: claims that hold for every correct `torch.optim.Optimizer`."""
