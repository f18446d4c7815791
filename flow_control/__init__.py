"""Backpressure between the stages of the broker: prefetch credit, bounded write buffers."""
