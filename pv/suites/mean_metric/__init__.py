"""The suite `mean-metric`: claims that hold for every correct running mean over batches of unequal weight."""
