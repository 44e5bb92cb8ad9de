# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible server over one engine; needs the extra `serve`."""
