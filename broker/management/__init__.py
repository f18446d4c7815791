"""RabbitMQ's management HTTP API, one module per resource, and what is ours beyond it."""
