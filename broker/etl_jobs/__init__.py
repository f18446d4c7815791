"""ETL jobs as they report themselves: the broker runs none, and shows how they do."""
