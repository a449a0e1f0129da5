"""Storage in local folders and buckets. It knows nothing of what files hold."""
