"""A whole node on a simulated disk: seeded lives with crashes, and what must be true throughout."""
