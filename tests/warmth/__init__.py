"""What KV that is kept must never change: the tokens a session draws, whoever ran in between.

Real daemons with real models. Numeric noise is kept out: tokens are compared where both sides decode in batches of
the same shape, or where the model is so sure that the shape cannot matter.
"""
