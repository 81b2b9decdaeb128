"""The bench: which speed-up pays on this machine?"""
