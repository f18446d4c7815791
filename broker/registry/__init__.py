"""The schema registry: Confluent's REST API over definitions that all nodes agree on."""
