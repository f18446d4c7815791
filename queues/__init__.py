"""Queues: the FIFO machine, its ready list, its consumers and their dispatch; pure, without I/O."""
