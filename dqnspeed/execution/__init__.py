"""How the arithmetic of a learner is run."""
