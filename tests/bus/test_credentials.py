"""Who we are at a NATS server, in each way that needs no further package; and a connection that is encrypted."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from bread import Bread
from bread.runtime.cli import checks_nats
from bread.runtime.servers import NatsServer
from bread.testing import text
from bread.transport import nats_link
from bread.transport.jetstream import JetStream
from nats_server import kept_of, outside
from scenes import agent, engine_of, refused

from .test_relay import store_in

TLS = 'tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}'


def link_of(bread: Bread) -> JetStream:
    transport = engine_of(bread).transport
    assert isinstance(transport, JetStream)
    return transport


def certify(folder: Path) -> None:
    """A certificate that nobody has signed but itself."""
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=nats"
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*words.split(), *more], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("conf", "right", "wrong"),
    [
        ('authorization { user: ann, password: "p@ss/1" }', "ann:p%40ss%2F1@", "ann:p@"),
        ('authorization { token: "t/1" }', "t%2F1@", "other@"),
    ],
    ids=["password", "token"],
)
async def test_b148_the_url_says_who_we_are(tmp_path: Path, conf: str, right: str, wrong: str) -> None:
    """With the wrong secret, or with none, it is TRANSPORT_UNAVAILABLE, which shows no secret."""
    with NatsServer(tmp_path / "nats", conf) as server:
        for who in (wrong, ""):
            with refused("TRANSPORT_UNAVAILABLE") as caught:
                async with Bread(store="memory://", nats=f"nats://{who}127.0.0.1:{server.port}"):
                    pass
            assert "does not accept who we are" in str(caught.value)
            assert not who or who.rstrip("@") not in str(caught.value)
        url = f"nats://{right}127.0.0.1:{server.port}"
        hello = agent([[text("Hello.")]])
        async with Bread(agents=[hello], store=store_in(tmp_path), nats=url) as bread:
            assert link_of(bread).is_up
            assert await bread.run("a", "go") == "Hello."


async def test_b148_a_credentials_file_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSPORT_UNAVAILABLE, and why; of doctor, too."""
    monkeypatch.setattr(nats_link, "find_spec", lambda name: None)
    file = tmp_path / "bread.creds"
    for words in ("No such file", "pip install 'nats-py[nkeys]'"):
        bus = JetStream("nats://127.0.0.1:4222", creds=str(file))
        with refused("TRANSPORT_UNAVAILABLE") as caught:
            async with Bread(store="memory://", transport=bus):
                pass
        assert words in str(caught.value)
        [found] = [one async for one in checks_nats.server(bus)]
        assert (found.state, found.what) == ("fail", "transport")
        assert words in found.detail
        file.touch()


async def test_b148_a_connection_is_encrypted(tmp_path: Path) -> None:
    """With a certificate of one's own: who trusts it is served, who does not is not, and tells so; runs go on."""
    certify(tmp_path)
    trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    hello = agent([[text("Hello.")]])
    with NatsServer(tmp_path / "nats", TLS.format(folder=tmp_path)) as server:
        url, store = f"tls://127.0.0.1:{server.port}", store_in(tmp_path)
        async with Bread(agents=[hello], store=store, transport=JetStream(url, tls=trusting)) as bread:
            assert link_of(bread).is_up
            assert await bread.run("a", "go") == "Hello."
        async with Bread(agents=[hello], store=store, transport=JetStream(url)) as bread:
            assert not link_of(bread).is_up
            assert await bread.run("a", "go") == "Hello."
        client = await outside(server, tls=trusting)
        assert len(await kept_of(client.jetstream(), "bread.v1.*.crumbs.>")) == 3
        await client.close()
