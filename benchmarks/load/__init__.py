"""The service under load, compared with other servers of the same network."""
