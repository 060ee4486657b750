"""What training and serving share: the network and the contract of an exported bundle."""
