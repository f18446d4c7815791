"""Load generator and comparison table: the same load on Leveret and on RabbitMQ, in one run."""
