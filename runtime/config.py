"""`bread.config.py`: what an app says once, and what the environment may say instead.

    config = Config(store="sqlite:///.bread/bread.db", entrypoints=("publisher",))

`BREAD_STORE`, `BREAD_NATS`, `BREAD_NATS_PASSWORD`, `BREAD_NATS_CREDS`, `BREAD_AGENTS`, `BREAD_ENTRYPOINTS` (with
commas, or JSON), `BREAD_CONCURRENCY`, `BREAD_GRACE` and `BREAD_CORS` (as names) beat the file. Errors name the file and
line, and the field or the variable; what stands in a variable is shown to nobody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from ..domain.errors import BreadError, InvalidInput
from ..transport.nats_settings import address_of
from ..transport.port import Transport
from . import origins
from .agents import Agent
from .app import GRACE_SECONDS
from .buses import bus_of
from .composing import Step, define_pipeline
from .loader import load_agents
from .sources import AGENTS_FOLDER, CONFIG_FILE, Files, invalid, line_of
from .stores import DEFAULT_STORE, EXPECTED, store_path

PREFIX = "BREAD_"


class Config(BaseSettings):
    """The settings of an app. Paths are relative to the folder of bread.config.py.

    `store` as of Bread. `agents` is the folder with a folder for each agent. `entrypoints` are the agents that people
    may start from outside (`bread chat`, `bread invoke`); none named: all. `concurrency` caps the root runs of a
    process, `grace` is how many seconds a process that stops waits for what is under way. `cors` are the origins whose
    pages may call `bread start` from a browser. `pipelines` are lists of steps by their ids, which the file alone can
    say. `nats` is the URL of a NATS server: without one, processes on one store hear each other through it;
    `nats_password` and `nats_creds` (a file) are what proves who we are there. Raises CONFIG_INVALID.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    store: str = DEFAULT_STORE
    nats: str | None = None
    nats_password: SecretStr | None = None
    nats_creds: str | None = None
    agents: Annotated[str, Field(min_length=1)] = AGENTS_FOLDER
    entrypoints: Annotated[tuple[str, ...], NoDecode] = ()
    concurrency: Annotated[int | None, Field(ge=1)] = None
    grace: Annotated[float, Field(ge=0, allow_inf_nan=False)] = GRACE_SECONDS
    cors: Annotated[tuple[str, ...], NoDecode] = ()
    pipelines: Annotated[dict[str, tuple[Step | str, ...]], NoDecode] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment, then what the file says."""
        return env_settings, init_settings

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(given)
        except ValidationError as error:
            problems = [_words(str(e["loc"][0]), e["type"], e["msg"]) for e in error.errors()]
        raise InvalidInput("CONFIG_INVALID", "; ".join(problems), problems=problems)

    @field_validator("store")
    @classmethod
    def _is_store(cls, store: str) -> str:
        try:
            store_path(store)
        except InvalidInput:
            raise ValueError(EXPECTED) from None
        return store

    @field_validator("nats")
    @classmethod
    def _is_nats(cls, url: str | None) -> str | None:
        try:
            return url if url is None or address_of(url) else None
        except InvalidInput as error:
            raise ValueError(error.message.partition(": ")[2]) from None

    def transport(self, nats: str | None = None) -> Transport | None:
        """What the settings of NATS name, or `nats` in place of their URL; None without any."""
        password = self.nats_password.get_secret_value() if self.nats_password else None
        return bus_of(nats or self.nats, password, self.nats_creds)

    @field_validator("entrypoints", "cors", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if not given.lstrip().startswith("["):
            return [name.strip() for name in given.split(",") if name.strip()]
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            raise ValueError("expected names with commas between them, or a JSON list") from None

    @field_validator("cors")
    @classmethod
    def _are_origins(cls, cors: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(origins.is_origin, cors)):
            raise ValueError(origins.EXPECTED)
        return cors

    @field_validator("pipelines", mode="before")
    @classmethod
    def _in_code(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError("expected lists of steps: say them in bread.config.py")
        return given


def load_config(folder: str | Path = ".") -> Config:
    """What `bread.config.py` of a folder says, under the environment; without the file the defaults, under it."""
    home = Path(folder)
    file = home / CONFIG_FILE
    if not file.is_file():
        return Config()
    config = getattr(Files(home).module(file), "config", None)
    if not isinstance(config, Config):
        raise invalid(file, f"expected config = Config(...), found {type(config).__name__}", line_of(file, "config"))
    return config


def app_options(folder: str | Path = ".") -> dict[str, Any]:
    """The app of a folder as arguments of Bread: its agents, and what its configuration says."""
    home, config = Path(folder), load_config(folder)
    agents = load_agents(home / config.agents)
    check_entrypoints(config, [*(agent.id for agent in agents), *config.pipelines], folder)
    check_pipelines(config, agents, folder)
    path = store_path(config.store)
    relative = path is not None and not path.startswith("~")
    return {
        "agents": agents,
        "pipelines": config.pipelines,
        "store": f"sqlite:///{home / str(path)}" if relative else config.store,
        "concurrency": config.concurrency,
        "grace": config.grace,
        "transport": config.transport(),
    }


def check_entrypoints(config: Config, there: Collection[str], folder: str | Path = ".") -> None:
    """CONFIG_INVALID for entrypoints that are none of the agents, which are given by their ids."""
    unknown = [name for name in config.entrypoints if name not in there]
    if not unknown:
        return
    known = f"there are: {', '.join(there) or 'none'}"
    if variable := _variable("entrypoints"):
        places = ", ".join(str(config.entrypoints.index(name) + 1) for name in unknown)
        raise InvalidInput("CONFIG_INVALID", f"{variable}: no agent is called as its name {places}; {known}")
    file = Path(folder) / CONFIG_FILE
    names = ", ".join(map(repr, unknown))
    raise invalid(file, f"entrypoints: there is no agent {names}; {known}", line_of(file, "config"))


def check_pipelines(config: Config, agents: Collection[Agent], folder: str | Path = ".") -> None:
    """What is wrong with the pipelines, with the file: unknown agents and skills, names, steps of another shape."""
    there = {agent.id: agent for agent in agents}
    for name, steps in config.pipelines.items():
        try:
            define_pipeline(name, steps, there)
        except BreadError as error:
            file = Path(folder) / CONFIG_FILE
            raise invalid(file, error.message, line_of(file, "config")) from None


def _words(field: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{field}: there is no such setting; there are: {', '.join(Config.model_fields)}"
    message = message.removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{_variable(field) or field}: {message}"


def _variable(field: str) -> str | None:
    """The variable that a field has its value from."""
    wanted = f"{PREFIX}{field}".upper()
    return next((name for name, value in os.environ.items() if name.upper() == wanted and value), None)
