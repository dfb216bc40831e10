"""Makers of what runs, for fixtures: what a test leaves running ends with it."""

from contextlib import ExitStack, contextmanager


@contextmanager
def closing_all(make):
    """`make`, whose every product is closed at the end, the last one first."""
    with ExitStack() as stack:

        def made(*args, **settings):
            product = make(*args, **settings)
            stack.callback(product.close)
            return product

        yield made
