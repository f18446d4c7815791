"""The Trio client of streams, and what it shares with the blocking one."""
