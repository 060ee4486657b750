"""The supervisor, its workers, and the engine that they may share."""
