"""Offline training: a run trains a recipe's network; export makes it a bundle with a card.

`data.folder` reads a folder of pictures as images, `data.datasets` a published data set. `tasks`
computes the losses of a batch by the terms of `losses`, and `trainer` is the loop around it.
`export` begins with the list of files that it writes.
"""
