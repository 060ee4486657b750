"""Offline training: a run trains a recipe's network; export makes it a bundle with a card."""
