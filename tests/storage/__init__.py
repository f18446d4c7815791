"""The log store: format, model under crashes, faults of the disk, the real disk."""
