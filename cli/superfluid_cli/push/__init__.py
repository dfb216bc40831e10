"""`superfluid push`: lines of a pipe into a session, none of them lost on the way."""
