"""One module per subcommand of `parity`, each with `main(argv)` returning the exit status."""
