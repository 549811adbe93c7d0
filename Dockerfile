# bread with what it needs to serve and to share a store. Agents are mounted at /app, or copied there by an image that
# begins with this one. It holds no secret and no agent.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE MANIFEST.in ./
COPY bread bread
COPY domain domain
COPY projections projections
COPY transport transport
COPY runtime runtime
RUN python -m venv /opt/bread \
    && /opt/bread/bin/pip install --no-cache-dir -c constraints.txt '.[server,postgres]'

FROM python:3.13-slim
RUN useradd --uid 10001 --home-dir /app --no-create-home --shell /usr/sbin/nologin bread \
    && install --directory --owner=bread --group=bread /app
COPY --from=build /opt/bread /opt/bread
ENV PATH=/opt/bread/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001:10001
EXPOSE 7331
# /readyz asks the store; nobody needs a key for it.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=12 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 7331, timeout=2); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["bread"]
CMD ["start", "--host", "0.0.0.0"]
