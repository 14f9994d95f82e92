"""The twelve questions, a module each: data frames in, data frames out. Neither the store nor the lake is known
here.
"""
