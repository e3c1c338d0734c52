"""`python -m fewview` is the `fewview` command."""

from fewview.cli import main

if __name__ == "__main__":
    main()
