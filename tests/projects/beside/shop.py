def total(prices):
    return sum(prices)


def double(n):
    return 2 * n
