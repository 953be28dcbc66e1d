"""The processes (ranks) of a run: `coordination` connects them and shares errors, `parallel` reduces gradients."""
