"""What is told: frames, subjects and the ways they travel."""
