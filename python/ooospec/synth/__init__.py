# SPDX-License-Identifier: Apache-2.0
"""Requests for tool calls, made up: a deterministic generator of training, test and load data."""
