"""Use cases on sessions as the log has them: make, append to, look at, keep, pin, purge."""
