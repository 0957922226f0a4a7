"""What runs where: regions of safe parallelism, then steps, stages and the shuffles between them."""
