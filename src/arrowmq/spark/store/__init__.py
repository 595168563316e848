"""Store directories as tables, without a broker: segments walked record by record, and the small tables beside them."""
