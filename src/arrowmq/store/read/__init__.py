"""Reading: by queue and offset with Apache's limits and outcomes, by time; and reads that must wait for the disk."""
