"""What the model is: its file, its vocabulary, its chat template.

Imports `superfluid.protocol` only; llama.cpp is reached from `vocabulary` alone.
"""
