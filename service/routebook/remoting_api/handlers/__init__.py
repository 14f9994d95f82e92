"""One module a noun; each answers some request codes. `dispatch` knows which."""
