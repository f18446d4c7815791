"""The server's side of the stream protocol (docs/stream-protocol.md)."""
