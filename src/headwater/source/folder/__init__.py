"""Sets with a folder: a pipeline that scans, records and publishes, and the thread that runs it."""
