# SPDX-License-Identifier: Apache-2.0
"""`python -m ooospec` is the command line."""

from ooospec.cli.main import main

if __name__ == "__main__":
    main()
