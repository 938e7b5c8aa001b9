"""NeuralXC: autoencoders for inputs and label sets with a regressor between their codes."""
