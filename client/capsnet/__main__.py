"""The command: `python -m capsnet`, or `capsnet`."""

from capsnet.command import main

if __name__ == "__main__":
    main()
