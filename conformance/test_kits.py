"""The kits for other languages pass their own tests, by the tools of their languages, and can be published."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from conformance.builds import QUICK_GO
from conformance.projects import KITS, ended, run
from minibroker import __version__

pytestmark = pytest.mark.minibroker_only
TYPED = """
import { start, type Options, type Record } from 'minibroker'
const options: Options = { nodes: 3 }
const kafka = await start(options)
await kafka.addFault({ api: 'Produce', times: 2, delay: '1 s' })
const found: Record[] = await kafka.expect('orders', 2, { timeout: 50 })
const leader: number | null = await kafka.leader('orders', 0)
console.log(found[0].value?.length, leader, kafka.servers.length)
"""


def test_the_kit_for_go_passes_its_own_tests() -> None:
    assert run(KITS / "go", "gofmt", "-l", ".") == ""
    run(KITS / "go", "go", "vet", "./...")
    run(KITS / "go", "go", "test", QUICK_GO, "-count=1", "./...")


def test_the_go_kit_is_a_module_without_dependencies() -> None:
    assert len(run(KITS / "go", "go", "list", "-m", "all").splitlines()) == 1


def test_the_kit_for_nodejs_passes_its_own_tests() -> None:
    run(KITS / "node", "node", "--test")


def test_the_kit_for_nodejs_has_type_declarations(tmp_path: Path) -> None:
    """A program in TypeScript that uses it is checked, strictly."""
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund", "typescript@5", "@types/node@20", str(KITS / "node"))
    (tmp_path / "typed.mts").write_text(TYPED)
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "typed.mts")
    run(tmp_path, "npx", "tsc", *options)
    (tmp_path / "typed.mts").write_text(TYPED.replace("times: 2", "times: 'twice'"))
    done = ended(tmp_path, tmp_path, "npx", "tsc", *options)
    assert "Type 'string' is not assignable to type 'number'" in done.stdout


def test_the_kit_for_nodejs_can_be_published(tmp_path: Path) -> None:
    run(KITS / "node", "npm", "publish", "--dry-run")
    packed = run(KITS / "node", "npm", "pack", "--pack-destination", str(tmp_path)).split()[-1]
    with tarfile.open(tmp_path / packed) as package:
        names = {name.removeprefix("package/") for name in package.getnames()}
    shipped = {"index.js", "process.js", "verbs.js", "index.d.ts", "verbs.d.ts", "package.json", "README.md"}
    assert names == shipped


def test_the_kit_for_java_passes_its_own_tests_and_can_be_packed() -> None:
    run(KITS / "java", "mvn", "-q", "-B", "-P", "release", "-Dgpg.skip", "clean", "verify")
    packed = {each.name for each in (KITS / "java" / "target").glob("*.jar")}
    assert packed == {f"minibroker-{__version__}{part}.jar" for part in ("", "-sources", "-javadoc")}
