from shop.lazy import key

def late(number):
    return key(number)
