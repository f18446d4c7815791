"""Policies: pure parts, on a live broker, over HTTP and by command."""
