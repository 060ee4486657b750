"""Many replicas behind a load balancer, simulated; one of them measured."""
