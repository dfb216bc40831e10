"""Replies to requests that bring along all that is answered: whole conversations, prompts, the two ends of a text.

Stands on `sessions`: each such request is a session of its own (decision 38).
"""
