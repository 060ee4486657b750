"""The processes of the service: a supervisor and its workers."""
