"""Work in processes that can be killed: decoding uploads, and drawing."""
