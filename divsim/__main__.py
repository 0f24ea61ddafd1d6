"""`python -m divsim` is `divsim`."""

from divsim.cli import main

main()
