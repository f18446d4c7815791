"""Spark on stream queues. Empty until there are stream queues."""
