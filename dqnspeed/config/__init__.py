"""What a run is made of: the schema of its options, their ranges, and how they must go together."""
