def measured():
    return 1

def spoken():
    """Says."""

def secret():
    return 41
