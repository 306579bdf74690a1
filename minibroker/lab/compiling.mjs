// node compiling.mjs PYODIDE FROM.tar TO.tar: adds to the modules that a start imports what Pyodide's own Python compiles of
// them. Each browser would have to, which takes more than half of the time of the imports.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, from, to] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href);
const wheels = readdirSync(pyodide).filter((name) => name.endsWith(".whl")).map((name) => join(pyodide, name));
const python = await loadPyodide({ packages: wheels, messageCallback: () => null });
python.FS.writeFile("/from.tar", new Uint8Array(readFileSync(from)));
python.runPython(`
import pathlib, py_compile, sys, tarfile
with tarfile.open("/from.tar") as archive:
    archive.extractall("/lab", filter="data")
sys.path.append("/lab")
sys.dont_write_bytecode = True
import minibroker.lab.desk, minibroker.explorer.explorer_routes
for module in list(sys.modules.values()):
    if module.__name__.startswith("minibroker"):
        py_compile.compile(module.__file__, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
with tarfile.open("/to.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
    for path in sorted(path for path in pathlib.Path("/lab").rglob("*") if path.is_file()):
        entry = tarfile.TarInfo(str(path.relative_to("/lab")))
        entry.size = path.stat().st_size
        with path.open("rb") as file:
            archive.addfile(entry, file)
`);
writeFileSync(to, python.FS.readFile("/to.tar"));
process.exit(0);
