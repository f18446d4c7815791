"""What operators do with a running node over HTTP and by command."""
