"""What is found out about finished bundles."""
