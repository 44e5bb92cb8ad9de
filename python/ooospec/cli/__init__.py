# SPDX-License-Identifier: Apache-2.0
"""The command line, a command a file; main.py puts them together."""
