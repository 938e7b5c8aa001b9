"""HierarchicalXC: a binary tree of classifiers over clustered labels."""
