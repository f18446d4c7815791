"""The stream protocol: codec, server's side and blocking client, against streams in memory."""
