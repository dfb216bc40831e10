"""What can be said: requests, responses, records, codes, and their two encodings.

Pure: nothing here reads a clock, opens a file or knows a socket. A newcomer starts at `records`.
"""
