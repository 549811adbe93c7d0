"""What is decided: aggregates, their rules and their events, without clock or I/O."""
