"""What the API's description says of each route: one table, which `openapi.json` is made from."""
