"""The engine worker."""
