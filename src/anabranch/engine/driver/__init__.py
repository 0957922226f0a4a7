"""What runs between the tasks of epochs.

runner.py          the course of an epoch, from its begin to its manifest
results.py, sink.py, feedback.py, epoch_progress.py
adaptation.py      what changes between two epochs: scaling.py, balancing.py, epoch_sizing.py
switching.py       going over to another form of the program
waiting.py, slot_need.py   what the driver knows of its surroundings, and needs of them
"""
