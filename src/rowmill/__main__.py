"""`python -m rowmill`: the same as the `rowmill` command."""

from rowmill.cli import main

main(prog_name="rowmill")
