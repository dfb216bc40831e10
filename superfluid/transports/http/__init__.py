"""The HTTP listener: OpenAI's chat and completion routes, models, health and metrics.

`listener` accepts connections, `guard` says who may ask, `app` holds the routes. A route parses a body (`body`,
`fields`, `sampling`, `chat`, `completions`) into asks, `answering` runs them and ends them with the client, and
`errors` puts every refusal into OpenAI's words.
"""
