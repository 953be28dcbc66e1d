import inspect
from pathlib import Path
from shop import hidden

def executed():
    space = {}
    exec(Path("shop/code.txt").read_text(), space)
    return space["answer"]()

def lines():
    return len(inspect.getsource(hidden.measured).splitlines())

def doc():
    return hidden.spoken.__doc__

def consts():
    return hidden.secret.__code__.co_consts

def source_of_hidden():
    return inspect.getsource(hidden.secret)

def loader_source():
    return hidden.__loader__.get_source("shop.hidden")
