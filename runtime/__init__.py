"""What is done: effects, the journal and everything that touches the world."""
