"""The service under load, beside other servers of the same network."""
