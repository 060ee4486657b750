"""Offline training: a recipe and data become a run, its network a bundle with scores and a card."""
