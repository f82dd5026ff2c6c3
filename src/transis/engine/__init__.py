"""What both engines build on: the contract they fulfil, and the parts that they share."""
