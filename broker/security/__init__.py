"""Who may come in, and what they may do: users, passwords, permissions, limits, TLS."""
