"""APLC-XLNet: adaptive probabilistic label clusters over a pretrained encoder (Ye et al. 2020)."""
