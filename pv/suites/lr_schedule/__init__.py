"""The suite `lr-schedule`: claims that hold for every correct schedule of a learning rate."""
