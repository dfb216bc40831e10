"""The browser transport: the session API as JSON over HTTP, server-sent events and a WebSocket (`--web`).

`listener` accepts connections and mints the `token`, `guard` says who may ask, `app` holds the routes: `rpc` answers
one request, `stream` a generation, `socket` everything.
"""
