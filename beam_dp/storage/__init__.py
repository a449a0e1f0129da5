"""Storage in local folders and buckets, independent of the content of files."""
