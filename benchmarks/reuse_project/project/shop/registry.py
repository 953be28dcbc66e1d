import glob
import importlib
import importlib.metadata
import os
import pkgutil
import sys
from pathlib import Path
import shop.plugins

REGISTRY = {}

def register(name):
    def added(function):
        REGISTRY[name] = function
        return function
    return added

@register("a")
def first():
    return 1

@register("b")
def second():
    return 2

def plugins():
    names = sorted(name[:-3] for name in os.listdir("shop/plugins") if name.endswith(".py") and name[0] != "_")
    return [importlib.import_module(f"shop.plugins.{name}").NAME for name in names]

def walked():
    return [found.name for found in pkgutil.iter_modules(shop.plugins.__path__)]

def globbed():
    return len(glob.glob("shop/plugins/[a-z]*.py"))

def entries():
    found = importlib.metadata.distributions(path=["."])
    return [entry.value for each in found for entry in each.entry_points]

def vendored():
    sys.path[:0] = ["override", "vendor"]
    return importlib.import_module("thing").WHO

def extra():
    try:
        from extras import fast
    except ImportError:
        return None
    return fast

def sibling():
    sys.path.insert(0, "../beside")
    return importlib.import_module("sibling").level()
