"""Object storage: S3, Azure, Google Cloud, or a directory. No other room talks to it."""
