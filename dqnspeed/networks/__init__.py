"""Networks: the options of ``model``, and the heads that algorithms put on them."""
