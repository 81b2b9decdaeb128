"""The live page: a web server on this machine, and the games of an agent that it shows."""
