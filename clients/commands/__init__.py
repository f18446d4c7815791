"""The `leveret` commands that speak AMQP, as any other client does."""
