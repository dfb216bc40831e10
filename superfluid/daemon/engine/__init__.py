"""The daemon's side of the engine: ticks, the worker's life, what is in flight, and what it drew to the log.

What runs on the other side of the socket is `superfluid.engine`, which nothing here imports.
"""
