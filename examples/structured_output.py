"""An answer of a given shape: what does not fit goes back to the model, and every such attempt is recorded."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from bread import Bread, define_agent
from bread.testing import ScriptedModel, text


class Recipe(BaseModel):
    title: str
    minutes: int


# The first answer is prose, the second lacks the minutes, the third fits.
model = ScriptedModel(
    [[text("Bake it for an hour.")], [text('{"title": "Bread"}')], [text('{"title": "Bread", "minutes": 60}')]]
)
cook = define_agent("cook", model=model, prompt="You write recipes.", output=Recipe, output_retries=2)


async def main(store: str = "memory://") -> object:
    async with Bread(agents=[cook], store=store) as bread:
        handle = bread.run("cook", "how do I bake bread?")
        async for crumb in handle:
            if crumb.type == "model:retry":
                print(f"{crumb.code}: {crumb.message}")
        output = (await bread.get_run(handle.run_id)).output
        recipe = Recipe.model_validate(output)  # the output is data; the class makes an object of it
    print(recipe)
    return output


if __name__ == "__main__":
    asyncio.run(main())
