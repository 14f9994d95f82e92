"""Builds the documentation site, its pictures and its reference pages."""
