"""The command line: thin Typer commands over a small blocking client of the daemon's unix socket."""
