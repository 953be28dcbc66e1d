"""What the shop imports; no subject of a contract."""


def rounded(cents):
    return cents + 0
