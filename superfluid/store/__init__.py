"""What survives: the session log, and the lock that makes one daemon its only writer."""
