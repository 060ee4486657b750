"""How the service runs on more than one machine: Ray, Kubernetes, KServe."""
