"""The HTTP API. Only server commands import it: it needs the extra `server`."""
