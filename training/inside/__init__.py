"""What is found inside a trained network: pose dimensions, familiarity, changes in routing."""
