"""One run: its plan, the training loop, its state, and what it shows and keeps."""
