"""The HTTP door: a small HTTP/1.1 server on h11, and the routes that answer there."""
