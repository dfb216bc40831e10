"""Use cases on sessions as the log has them: make, append to, generate, look at, keep, pin, purge."""
