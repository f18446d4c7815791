"""An AMQP channel: publishing, deliveries, topology and transactions of one client session."""
