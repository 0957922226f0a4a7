"""What is known of a region's keys: counted in tasks, put together in the driver."""
