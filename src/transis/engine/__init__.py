"""What both engines stand on: the contract they fulfil, and the parts that are the same idea in each."""
