// node compiling.mjs PYODIDE SOURCE.zip TO: writes the archives of Python's library and of the source into the folder TO, with
// what Pyodide's own Python compiles of all modules that a start loads. A browser would take seconds to compile them.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, source, to] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href);
const wheels = readdirSync(pyodide).filter((name) => name.endsWith(".whl")).map((name) => join(pyodide, name));
const python = await loadPyodide({ packages: wheels, messageCallback: () => null });
python.FS.writeFile("/lib/minibroker.zip", new Uint8Array(readFileSync(source)));
await python.runPythonAsync(`
import sys
sys.dont_write_bytecode = True
source = "/lib/minibroker.zip" # where the browser has it, too
sys.path.append(source)
from minibroker.lab.desk import open_desk
await open_desk(lambda _: None)
from minibroker.lab.compiling import compile_archive
library = next(path for path in sys.path if path.endswith(".zip") and path != source)
compile_archive(source, "/minibroker.zip", keeps_source=True)
compile_archive(library, "/python_stdlib.zip", keeps_source=False)  # which would be too large with both
`);
for (const name of ["minibroker.zip", "python_stdlib.zip"]) writeFileSync(join(to, name), python.FS.readFile(`/${name}`));
process.exit(0);
