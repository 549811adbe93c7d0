"""Who calls, and what they may do: API keys, tokens (JWT), and a hook of the app. Without any of it nobody is asked."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from fastapi import Request

from ...domain.envelope import APP, Principal
from ...domain.errors import BreadError, InvalidInput, NotFound
from ..app import Bread

Role = Literal["run", "answer", "observe", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
KEY_PREFIX = "bread_"


@dataclass(frozen=True)
class Caller:
    """Who calls: the author of what they bring about, and their roles. `admin` has all of them."""

    principal: Principal
    roles: frozenset[str]

    def has(self, role: Role) -> bool:
        return role in self.roles or "admin" in self.roles


class Authorize(Protocol):
    """A hook of the app: whether a caller may do that to this agent, pipeline, run, checkpoint, session or loop. It is
    asked after the roles; what a list has is filtered by it. Of a run that begins it is asked twice: about the agent or
    pipeline, and about the session, if it exists already."""

    def __call__(self, caller: Caller, action: Role, subject: Any, /) -> bool | Awaitable[bool]: ...


class Tokens(Protocol):
    """Reads a bearer token that is no API key; None if it is no good."""

    async def __call__(self, token: str, /) -> Caller | None: ...


ANYBODY = Caller(APP, frozenset(ROLES))


@dataclass(frozen=True)
class Auth:
    """What is asked of callers. Without keys and tokens everybody may do everything, unless the hook says otherwise."""

    keys: Keys | None = None
    tokens: Tokens | None = None
    authorize: Authorize | None = None

    @property
    def asks(self) -> bool:
        """Whether callers have to say who they are."""
        return self.keys is not None or self.tokens is not None

    async def admit(self, request: Request, action: Role, load: Callable[[], Awaitable[Any]] | None = None) -> Caller:
        """The caller, if they may; UNAUTHORIZED, or FORBIDDEN. `load` gives what it is about, if the hook asks."""
        caller = await self._caller(request) if self.asks else ANYBODY
        if not caller.has(action):
            raise BreadError("FORBIDDEN", f"this needs the role {action}")
        await self.check(caller, action, load)
        return caller

    async def check(self, caller: Caller, action: Role, load: Callable[[], Awaitable[Any]] | None) -> None:
        """FORBIDDEN unless the hook lets the caller do that to what `load` gives."""
        if self.authorize is None or load is None:
            return
        if not await self.allows(caller, action, await load()):
            raise BreadError("FORBIDDEN", "this is not for you")

    async def check_session(self, caller: Caller, action: Role, bread: Bread, session_id: str | None) -> None:
        """The same of a session. One that is not there is nobody's: who names it first has it."""
        if self.authorize is None or session_id is None:
            return
        with suppress(NotFound):
            await self.check(caller, action, partial(bread.sessions.get, session_id))

    async def seen_by(self, caller: Caller, items: Iterable[Any]) -> list[Any]:
        """What of a list the caller may see."""
        return [item for item in items if await self.allows(caller, "observe", item)]

    async def allows(self, caller: Caller, action: Role, subject: Any) -> bool:
        """What the hook of the app says."""
        if self.authorize is None:
            return True
        allowed = self.authorize(caller, action, subject)
        return await allowed if isawaitable(allowed) else allowed

    async def _caller(self, request: Request) -> Caller:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        caller = None
        if given and self.keys is not None:
            caller = self.keys.find(given)
        if given and caller is None and self.tokens is not None:
            caller = await self.tokens(given)
        if caller is None:
            raise BreadError("UNAUTHORIZED", "give a key: `Authorization: Bearer ...` or `X-API-Key: ...`")
        return caller


# --- keys -------------------------------------------------------------------------------------------------------------


@dataclass
class Keys:
    """API keys by their hashes, in a file that only its owner reads. A key itself is shown once, when it is made."""

    file: Path
    known: dict[str, tuple[str, tuple[Role, ...]]] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path, *, must_exist: bool = False) -> Keys:
        """The keys of a file; CONFIG_INVALID for one of another shape, and for one that is missing but must exist."""
        if not file.exists():
            if must_exist:
                make = f"bread keys add NAME --role ROLE --keys {shlex.quote(str(file))}"
                raise InvalidInput("CONFIG_INVALID", f"{file}: there is no such file of keys; to make it: {make}")
            return cls(file)
        try:
            given = json.loads(file.read_text())
            known = {one["hash"]: (str(one["name"]), _roles(one["roles"])) for one in given["keys"]}
        except (ValueError, TypeError, KeyError, BreadError) as error:
            raise InvalidInput("CONFIG_INVALID", f"{file}: no file of keys: {error}") from None
        return cls(file, known)

    def add(self, name: str, roles: Iterable[str]) -> str:
        """Make a key and store its hash. Gives the key."""
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        self.known[_hash(key)] = (name, _roles(roles))
        self._save()
        return key

    def remove(self, name: str) -> int:
        """Forget every key of that name; gives how many there were."""
        left = {hashed: one for hashed, one in self.known.items() if one[0] != name}
        gone, self.known = len(self.known) - len(left), left
        self._save()
        return gone

    def find(self, key: str) -> Caller | None:
        """Who has this key. Every hash is compared, in a time that does not depend on what it is."""
        hashed, found = _hash(key), None
        for known, (name, roles) in self.known.items():
            if hmac.compare_digest(known, hashed):
                found = Caller(Principal(kind="user", id=name), frozenset(roles))
        return found

    def _save(self) -> None:
        keys = [{"name": name, "roles": roles, "hash": hashed} for hashed, (name, roles) in self.known.items()]
        new = self.file.with_name(f"{self.file.name}.new")
        new.touch(mode=0o600)
        new.chmod(0o600)
        new.write_text(json.dumps({"keys": keys}, indent=1) + "\n")
        new.replace(self.file)


def _hash(key: str) -> str:
    # A key has 256 random bits: there is nothing to guess that a slow hash would slow down.
    return hashlib.sha256(key.encode()).hexdigest()


def _roles(roles: Iterable[str]) -> tuple[Role, ...]:
    given = {*roles}
    if not given or not given <= {*ROLES}:
        raise InvalidInput("INPUT_INVALID", f"roles: expected some of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)


# --- tokens -----------------------------------------------------------------------------------------------------------


class JsonWebTokens:
    """Bearer tokens of an issuer, checked with the keys that it publishes (JWKS) or with a secret that is shared.

    `sub` becomes the author, and the claim `roles` (or `scope`, words) the roles. A token without an expiry is none.
    """

    def __init__(
        self,
        *,
        jwks_url: str | None = None,
        secret: str | None = None,
        audience: str | None = None,
        issuer: str | None = None,
        claim: str = "roles",
    ) -> None:
        if (jwks_url is None) == (secret is None):
            raise InvalidInput("CONFIG_INVALID", "tokens: expected either jwks_url or secret")
        import jwt  # only where tokens are read

        self._jwt, self._secret = jwt, secret
        self._keys = jwt.PyJWKClient(jwks_url) if jwks_url is not None else None
        self._audience, self._issuer, self._claim = audience, issuer, claim

    async def __call__(self, token: str) -> Caller | None:
        try:
            claims = await asyncio.to_thread(self._read, token)
        except self._jwt.PyJWTError:
            return None
        given = claims.get(self._claim, claims.get("scope", ()))
        roles = given.split() if isinstance(given, str) else given if isinstance(given, list) else ()
        return Caller(Principal(kind="user", id=claims["sub"]), frozenset(role for role in roles if role in ROLES))

    def _read(self, token: str) -> Mapping[str, Any]:
        key: Any = self._secret
        algorithms = ["HS256", "HS384", "HS512"]
        if self._keys is not None:
            key = self._keys.get_signing_key_from_jwt(token).key
            algorithms = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
        claims: Mapping[str, Any] = self._jwt.decode(
            token,
            key,
            algorithms=algorithms,
            audience=self._audience,
            issuer=self._issuer,
            options={"require": ["exp", "sub"], "verify_aud": self._audience is not None},
        )
        return claims
