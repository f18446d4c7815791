"""The SQS front door: Amazon's queue API, in both of its protocols, on the queues of a vhost."""
