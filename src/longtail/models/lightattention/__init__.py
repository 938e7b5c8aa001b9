"""LightAttention: AttentionXML's BiLSTM and label attention over a shallow label tree, with dynamic negatives."""
