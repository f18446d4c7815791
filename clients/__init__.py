"""Client libraries, which share broker.protocol with the server. Streams: clients.streams."""
