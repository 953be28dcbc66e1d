def bare():
    """Help."""
