"""The process of the command line: `python -m minibroker`, and the script `minibroker`."""

import gc
import sys

gc.disable()  # until a command is imported: nothing of that is garbage, and looking for it takes 8 ms


def main() -> None:
    """Run the command line of this process, and end it."""
    if sys.argv[1:2] == ["serve"]:
        from minibroker.cli.plain_options import parse_plain_options, serve_without_click

        options = parse_plain_options(sys.argv[2:])
        if options is not None:
            serve_without_click(options)
    from minibroker.cli.main import main as commands

    commands()


if __name__ == "__main__":
    main()
