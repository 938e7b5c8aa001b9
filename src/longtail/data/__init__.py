"""What comes in: readers, the data set, the doctor, the split, the built-in corpora."""
