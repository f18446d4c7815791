"""An AMQP connection: its socket, its handshake, its heartbeats, and its channels."""
