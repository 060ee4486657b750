"""Offline training: data sets, recipes, the trainer, evaluation, export and plots."""
