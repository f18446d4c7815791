"""Several nodes that act as one: links, replicated definitions, queues with a leader elsewhere."""
