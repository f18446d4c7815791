"""Topics over HTTP: stream queues for programs that have nothing but an HTTP client."""
