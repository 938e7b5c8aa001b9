"""Selection: which method suits a corpus, a budget of time and a machine, and what each would cost."""
