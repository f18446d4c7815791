"""A connection with its client in the same process: no socket, and time that is made."""
