import click
import pydantic

class Item(pydantic.BaseModel):
    """An item."""
    price: int
    def total(self):
        return self.price * 2

def schema():
    return Item.model_json_schema()["description"]

@click.command()
def sell():
    """Sell it."""

def help_text():
    return sell.get_help(click.Context(sell))

class Lazy:
    def __getattr__(self, name):
        return 3

def __getattr__(name):
    if name == "attribute":
        return 8
    raise AttributeError(name)
