"""Networks, built from the numbers in conf/model."""
