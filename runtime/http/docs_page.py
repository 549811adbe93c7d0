"""`/docs`: the document of the API as a page that is read and tried. All that it needs comes from this server."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

# Swagger UI draws some of its pictures from data: addresses of its own style sheet.
POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
# Addresses are relative, so that the page also works below a path of a proxy.
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>bread</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/page.js"></script>
</body>
</html>
"""
SCRIPT = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  defaultModelRendering: "model",
  validatorUrl: null,
});
"""


def add_docs_page(app: FastAPI) -> None:
    """Serve the page, and the files of Swagger UI, which a package brings."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/docs")
    async def page() -> Response:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY})

    @routes.get("/docs/page.js")
    async def script() -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    app.include_router(routes)
    app.mount("/docs", StaticFiles(packages=[("fastapi_swagger", "resources")]))
