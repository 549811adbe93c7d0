"""A client for a server of bread: `from bread.client import Client`. It needs the extra `server`."""

from bread.runtime.http.client import Client

__all__ = ["Client"]
