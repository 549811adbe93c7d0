"""What is read: crumbs, view rows and lists, folded from events."""
