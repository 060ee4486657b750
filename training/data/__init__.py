"""The data sets, and what is made of them: batches, pairs of digits, transformed digits."""
