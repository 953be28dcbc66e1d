"""The processes (ranks) of a run: their connection and common errors in `coordination`, their gradients in `parallel`."""
