"""Groups, producers and transactions of stream queues."""
