"""Messages: found by id, shown as rows, and the life of one as events."""
