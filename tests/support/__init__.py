"""Tools shared by tests: broker processes, a raw AMQP client."""
