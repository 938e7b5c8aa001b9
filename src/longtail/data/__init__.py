"""Data: the data set, readers and writers for files, the data check, the split, the built-in corpora."""
