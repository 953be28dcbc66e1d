"""`python -m pv`."""

from pv.cli import main

if __name__ == "__main__":
    main()
