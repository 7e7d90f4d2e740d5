"""``python -m fferm`` is the command ``fferm``."""

import sys

from fferm.cli import main

if __name__ == "__main__":
    sys.exit(main())
