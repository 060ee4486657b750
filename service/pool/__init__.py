"""Work in processes that can be killed: decoding of strangers' files, and drawing."""
