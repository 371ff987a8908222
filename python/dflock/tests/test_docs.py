"""The examples of the page in the book, of the README and of the docstrings are run as they stand there."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import textwrap
import unittest
from typing import List
from unittest import mock

import dflock
from dflock import aio
from support import LIMIT, WORKSPACE, Case, ended, python


def blocks(text: str) -> List[str]:
    """The indented blocks."""
    found: List[List[str]] = [[]]
    before = ""
    for line in text.splitlines():
        is_code = line.startswith("    ") and (bool(found[-1]) or not before)
        if is_code or not line and found[-1]:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
        before = line
    return [textwrap.dedent("\n".join(lines)) for lines in found if lines]


class Examples(Case):
    def run_script(self, script: str) -> str:
        with mock.patch.dict(os.environ, {"DFLOCK_SERVERS": self.server.address}):
            process = python(script)
        with ended(process):
            said, complaints = process.communicate(timeout=LIMIT)
            self.assertEqual((process.returncode, complaints), (0, ""), script)
            return said

    def test_the_page_in_the_book(self) -> None:
        found = blocks((WORKSPACE / "docs/python.md").read_text())
        self.assertEqual(len(found), 6)
        said = self.run_script("\n".join(found))
        self.assertRegex(said, r"^it is mine, number \d+\nnightly report\n$")
        self.server.until_free("nightly", "convert", "report")

    def test_the_readme(self) -> None:
        """Its lines are fragments: each is completed, and the watch ends after its first step."""
        (block,) = [block for block in blocks((WORKSPACE / "python/dflock/README.md").read_text()) if "import" in block]
        report = "report = None\ndef publish(report, fence): print(fence > 0)\n"
        block = block.replace("    print(holder", "    print(holder", 1) + "\n    break\n"
        lines = block.splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("async with"))
        lines[at] = "async def story():\n    " + lines[at] + "\nimport asyncio; asyncio.run(story())"
        self.assertEqual(self.run_script(report + "\n".join(lines)), "True\nnobody\n")

    def test_the_docstrings(self) -> None:
        """They are Python, and name what exists."""
        count = 0
        for thing in (dflock, aio, dflock.Client, aio.Client, dflock.Client.watch):
            for block in blocks(inspect.getdoc(thing) or ""):
                ast.parse(block if "async " not in block else f"async def story():\n{textwrap.indent(block, '    ')}")
                count += 1
        self.assertEqual(count, 3)

    def test_what_is_public_has_a_docstring(self) -> None:
        for module in (dflock, aio):
            for name in module.__all__:
                thing = getattr(module, name)
                if callable(thing):
                    self.assertTrue(inspect.getdoc(thing), name)
                for part, member in vars(thing).items() if inspect.isclass(thing) else ():
                    if not part.startswith("_") and callable(member):
                        self.assertTrue(inspect.getdoc(member), f"{name}.{part}")
        self.assertEqual(set(aio.__all__), {name for name in dflock.__all__ if name in aio.__all__})
        for name in ("lock", "locks", "watch", "stats", "ping"):
            for one, other in ((getattr(dflock, name), getattr(aio, name)), (getattr(dflock.Client, name), getattr(aio.Client, name))):
                names = [list(inspect.signature(it).parameters) for it in (one, other)]
                self.assertEqual(*names, name)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        unittest.main()
