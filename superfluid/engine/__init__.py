"""What runs: the engine worker, a process of its own that owns the weights, the context and everything made of KV.

`python -m superfluid.engine --fd N` speaks `superfluid.protocol.ticks` on a socket pair. From the bottom up:

- `backend`    what the rest needs of an inference library; `llama` is the real one (`context` loads it), `fake` a
  small verified one (`fake_model` says what it draws)
- `sampling`   what a draw depends on
- `radix`      an index of token lists by prefix
- `host`       copies of KV in host memory, and checkpoints
- `artifact`   the file format of KV on disk;  `parks`  the directory of it
- `matching`   what of all that serves a lane, up to where (`prefixes`)
- `sequences`  who holds which sequence (`slots`), and where KV comes from
- `parking`    when KV goes to disk;  `park_writer`  the thread that writes it
- `lanes`      one running generation;  `rounds`  a tick, round by round
- `threads`    how many compute threads pay;  `neighbours`  what the machine's other processes do
- `channel`    frames on the socket, never blocking;  `worker`  the loop
"""
