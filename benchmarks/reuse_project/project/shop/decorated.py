import functools

def repeat(times):
    def decorate(function):
        @functools.wraps(function)
        def called(number):
            return function(number) * times
        return called
    return decorate

@repeat(2)
def twice(number):
    return number

@functools.lru_cache(maxsize=None)
def cached(number):
    return number

def kept(number, default=[]):
    values = list(default)
    for _ in range(2):
        values.append(cached(number))
    return values
