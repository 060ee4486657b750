"""Comparisons of networks with their controls; not packaged.

A table is a list of rows (`rows`, `tables`), and a row is a network that is trained and tested
(`run`). `python -m research` lists, runs and compares them.
"""
