"""The AMQP 0-9-1 wire protocol, sans-IO: bytes in, batches out; shared by broker and clients."""
