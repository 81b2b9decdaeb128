"""The options of a run: their schema, their ranges, and checks of their combinations."""
