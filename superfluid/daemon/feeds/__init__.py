"""Streaming sessions: data in, standing questions, questions that leave no trace, chat turns over the data.

Stands on `replies` and `sessions`. A feed is a session with a name (decision 15).
"""
