"""`python -m dragoman` is the command `dragoman`."""

import sys

from dragoman.command.main import main

if __name__ == "__main__":
    sys.exit(main())
