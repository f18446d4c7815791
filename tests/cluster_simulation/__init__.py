"""A cluster of whole nodes in simulated time: seeded faults, real channels, promises checked."""
