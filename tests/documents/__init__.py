"""Tests of the documentation: the site, the pages made from the code, and the commands that pages show."""
