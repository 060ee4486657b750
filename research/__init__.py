"""Comparisons of networks behind docs/results.md; not packaged.

A table is a list of runs and a function (`tables`, `page`); `routing` asks whether routing matters.
`python -m research` lists, runs and writes them.
"""
