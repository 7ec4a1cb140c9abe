"""What a job or a command is asked for: one model for each, from which every surface follows."""
