"""What bad clients may not do to a broker: fuzz at the socket, and limits."""
