"""Following a directory into which a live server records: one growing trace and one health file a rank."""
