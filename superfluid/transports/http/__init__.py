"""The HTTP listener: replies in OpenAI's and Anthropic's dialects, streaming sessions, models, health and metrics.

`listener` accepts connections, `guard` says who may ask, `app` holds the routes. A route that generates parses a body
(`body`, `fields`, `sampling`) into asks and tells the reply in its form (`chat`, `completions`, `messages`,
`questions`); `answering` runs the asks and ends them with the client. `sessions` are the routes that answer at once,
`events` and `feed_socket` those that go on. `naming` says which session is meant, and `errors` puts every refusal
into the words of its route.
"""
