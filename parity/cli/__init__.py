"""The `parity` command: one module per subcommand, each with ``main(argv, prog)``."""

from parity.cli.dispatch import main, run

__all__ = ["main", "run"]
