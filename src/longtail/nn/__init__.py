"""Parts that the neural methods share; they need torch, which the extra `nn` brings."""
