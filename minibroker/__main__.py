"""`python -m minibroker`: the command line without its script. Nothing else lives here."""

from minibroker.cli.main import main

if __name__ == "__main__":
    main()
