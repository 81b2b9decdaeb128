"""How updates are computed: optimizers, precision, threads and transfer to the device."""
