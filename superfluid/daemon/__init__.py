"""One running server.

    server, use_cases, transport    the composition root, what it makes, what it is given to serve on
    feeds/                          streaming sessions: data, flash queries, questions and turns over data
    replies/                        requests that bring along all that is answered: conversations, completions
    sessions/                       use cases on sessions as the log has them, generations included
    engine/                         ticks, the worker's life, what is in flight, what it drew to the log
    book, bus, served, metrics      the sessions and their log, events, the model, numbers: what all of them stand on

Each imports from those below it only, and a use case is a module a noun.
"""
