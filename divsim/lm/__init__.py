"""The small trainer: language models that a CPU or one GPU trains in minutes, every choice in sight."""
