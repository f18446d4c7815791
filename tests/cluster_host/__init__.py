"""Logs with members on several nodes, on simulated disks and links."""
