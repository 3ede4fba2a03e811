"""Where networks compute: devices, compiled passes, optimizers, ranks."""
