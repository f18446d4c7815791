"""The Spark data source for stream queues."""
