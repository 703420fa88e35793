"""Running: training and prediction, each measured in a process of its own. Imports everything above and the ground.

A job says what one process does; `robustcmp.performance.process` starts it, and looks at what it uses meanwhile.
"""
