"""`wattkeeper` and `python -m wattkeeper`."""

from __future__ import annotations

from wattkeeper.cli import app


def main() -> None:
    """Run the command line; ends the process with the command's exit code."""
    app(prog_name="wattkeeper")


if __name__ == "__main__":
    main()
