"""The node's log store: one write-ahead log for all groups, segments for what stays, recovery."""
