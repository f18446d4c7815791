"""Exchanges: which destinations a message goes to, given its routing keys and headers.

Pure and synchronous: nothing here waits, touches a socket or knows what a queue is.
"""
