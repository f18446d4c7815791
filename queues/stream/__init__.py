"""Stream queues: columnar chunks, segments with sparse indexes, and the partition on its log."""
