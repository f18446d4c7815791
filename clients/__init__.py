"""Client libraries for Leveret. They share broker.protocol with the server and nothing else."""
