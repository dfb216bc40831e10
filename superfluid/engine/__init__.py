"""What runs: the engine worker, a process of its own that owns the weights, the context and everything made of KV.

`python -m superfluid.engine --fd N` speaks `superfluid.protocol.ticks` on a socket pair. From the bottom up:

- `backend`    what the rest needs of an inference library; `llama` is the real one, `fake` a small verified one
- `sampling`   what a draw depends on
- `host`       copies of KV in host memory;  `sequences`  who holds which sequence, and where KV comes from
- `lanes`      one running generation;  `rounds`  a tick, round by round
- `threads`    how many compute threads pay;  `load`  what the machine's other processes do
- `channel`    frames on the socket, never blocking;  `worker`  the loop
"""
