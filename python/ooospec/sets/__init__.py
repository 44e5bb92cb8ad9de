# SPDX-License-Identifier: Apache-2.0
"""The three evaluation sets: request files out of the files that their authors published."""
