made = [number + 1 for number in range(5)][-1]
key = lambda value: value * 2

def load(number):
    from shop.late import late
    return late(number) + 1

def fast():
    try:
        from shop import speedups
    except ImportError:
        return "slow"
    return speedups.fast()
