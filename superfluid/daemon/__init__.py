"""One running server: composition root, one use-case module a noun, the event bus."""
