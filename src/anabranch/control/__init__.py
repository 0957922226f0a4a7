"""How many channels a region should have (pure): signals, controllers, their decision logs."""
