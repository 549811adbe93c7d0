"""One idea a file; the tests run each."""
