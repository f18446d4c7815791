"""Client libraries, which will share broker.protocol with the server. Empty so far."""
