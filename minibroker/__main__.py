"""The process of the command line: `python -m minibroker`, and the script `minibroker`."""

import gc

gc.disable()  # until a command is imported: nothing of that is garbage, and looking for it takes 8 ms

from minibroker.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
