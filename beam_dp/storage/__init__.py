"""Where files live: local folders and buckets; knows nothing of what they hold."""
