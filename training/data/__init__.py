"""The data sets and folders of pictures, and the batches and pairs that are made of them."""
