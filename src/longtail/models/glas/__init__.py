"""GLaS: label embeddings with a graph Laplacian and spread-out regulariser (Guo et al. 2019)."""
