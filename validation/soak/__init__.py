"""What robustcmp survives: broken files of every kind, processes that are killed, disks that are full, bits that flip.

Each trial has to end in a correct result or in a `RobustcmpError`. Anything else is a finding: another exception, a
crash, more than 10 seconds, more than 1 GiB, or a value that is wrong and believed. Run as a program (``make soak``) it
tries everything, keeps the counts in ``results.json`` beside this file, and writes docs/reliability.md from them.

``mutations`` breaks files, ``readers`` says what reads which file and what counts as wrong, ``pool`` runs the trials in
processes that it watches; ``kills``, ``disk`` and ``bits`` are the parts that need more than one file; ``page`` writes
the tables. A trial is a function of the reader's name, the seed and its number, so each can be run again alone.
"""
