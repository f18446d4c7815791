"""The web console: one page, with all that it needs, out of the broker's own memory."""
