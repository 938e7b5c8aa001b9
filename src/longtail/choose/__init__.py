"""Which method for this data: what the data are like, what each method would cost, and which one to take."""
