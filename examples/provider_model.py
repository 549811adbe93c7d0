"""A provider's model, by its name. Without its key or its package the run does not begin: the error says what to do.

BREAD_MODEL names another one, as `provider:model`.
"""

from __future__ import annotations

import asyncio
import os

from bread import Bread, InvalidInput, Model, define_agent


async def main(model: Model | str | None = None, store: str = "memory://") -> object:
    model = model or os.environ.get("BREAD_MODEL") or "anthropic:claude-sonnet-4-5"
    poet = define_agent("poet", model=model, prompt="Answer in one line.", settings={"max_tokens": 200})
    async with Bread(agents=[poet], store=store) as bread:
        try:
            output = await bread.run("poet", "What is bread?")
        except InvalidInput as error:
            if error.code != "MODEL_NOT_READY":
                raise
            output = error.message
    print(output)
    return output


if __name__ == "__main__":
    asyncio.run(main())
