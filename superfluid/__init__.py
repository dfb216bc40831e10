"""superfluid keeps durable, forkable conversations on a local language model."""

__version__ = "0.1.0"
