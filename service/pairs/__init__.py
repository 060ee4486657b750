"""Two digits at once: taking a picture of them apart, and making one."""
