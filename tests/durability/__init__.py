"""What survives: restarts, kills, damage, failing disks; and the models behind it."""
