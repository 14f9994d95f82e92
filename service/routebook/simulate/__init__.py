"""A fleet that is not there: brokers and clients that speak to real name servers, get into every kind of trouble, and
write down what they did.
"""
