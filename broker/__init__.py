"""The Leveret broker: its front doors, the wire protocol and what connects them to the queues."""
